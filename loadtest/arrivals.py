"""When requests are meant to be sent: the whole plan is drawn before the first one leaves.

Drawing the times first is what makes the load open-loop: a slow answer cannot hold back the requests behind it. Knows
no clock and no protocol; `loadtest.plan` draws a plan and `loadtest.generator` keeps it.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

# Shape (requests,), seconds from the start of the run, ascending, each in [0, duration).
Arrivals = NDArray[np.float64]
# Requests per second at times, of shape (n,), in seconds from the start; the same shape.
Rate = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def poisson_arrivals(rate: float, duration_seconds: float, seed: int) -> Arrivals:
    """Returns the arrivals of a Poisson process, the same for the same seed.

    Given their number, the arrivals of a Poisson process are independent and uniform over the interval (Kingman 1993,
    Poisson Processes, section 2.4), so two draws make an exact one.

    Args:
        rate: mean number of arrivals per second.
        duration_seconds: length of the run.
        seed: of the random generator.
    """
    return _poisson(rate, duration_seconds, np.random.default_rng(seed))


def constant_arrivals(rate: float, duration_seconds: float) -> Arrivals:
    """Returns arrivals exactly `1 / rate` seconds apart, the first at 0."""
    return np.arange(round(rate * duration_seconds), dtype=np.float64) / rate


def burst_arrivals(
    rate: float, peak_rate: float, duration_seconds: float, seed: int, *, every_seconds: float, burst_seconds: float
) -> Arrivals:
    """Returns the arrivals of a Poisson process whose rate jumps, the same for the same seed.

    Args:
        rate: mean number of arrivals per second between the bursts.
        peak_rate: the same in a burst.
        duration_seconds: length of the run.
        seed: of the random generator.
        every_seconds: from the beginning of a burst to that of the next; the first begins after the first pause.
        burst_seconds: length of a burst.
    """

    def rate_at(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        in_burst = seconds % every_seconds >= every_seconds - burst_seconds
        return np.where(in_burst, peak_rate, rate)

    return _varying(rate_at, max(rate, peak_rate), duration_seconds, seed)


def ramp_arrivals(rate: float, last_rate: float, duration_seconds: float, seed: int) -> Arrivals:
    """Returns the arrivals of a Poisson process whose rate changes evenly, the same for the same seed.

    Args:
        rate: mean number of arrivals per second at the start.
        last_rate: the same at the end.
        duration_seconds: length of the run.
        seed: of the random generator.
    """

    def rate_at(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(rate + (last_rate - rate) * seconds / duration_seconds)

    return _varying(rate_at, max(rate, last_rate), duration_seconds, seed)


def replayed_arrivals(times: Sequence[float], speed: float) -> Arrivals:
    """Returns recorded times as arrivals from 0 on, `speed` times as fast as they were."""
    recorded: Arrivals = np.asarray(times, dtype=np.float64)
    return np.asarray((recorded - recorded[0]) / speed)


def _varying(rate_at: Rate, peak_rate: float, duration_seconds: float, seed: int) -> Arrivals:
    """Thins a Poisson process of the peak rate: an arrival stays with probability rate / peak (Lewis, Shedler 1979)."""
    generator = np.random.default_rng(seed)
    candidates = _poisson(peak_rate, duration_seconds, generator)
    kept = generator.uniform(0.0, peak_rate, len(candidates)) < rate_at(candidates)
    return np.asarray(candidates[kept])


def _poisson(rate: float, duration_seconds: float, generator: np.random.Generator) -> Arrivals:
    count = generator.poisson(rate * duration_seconds)
    return np.sort(generator.uniform(0.0, duration_seconds, count))
