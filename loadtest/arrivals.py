"""When requests are meant to be sent: the whole plan is drawn before the first one leaves.

Drawing the times first is what makes the load open-loop: a slow answer cannot hold back the requests behind it. Knows
no clock and no protocol; `loadtest.load` draws a plan and `loadtest.generator` keeps it.
"""

import numpy as np
from numpy.typing import NDArray

# Shape (requests,), seconds from the start of the run, ascending, each in [0, duration).
Arrivals = NDArray[np.float64]


def poisson_arrivals(rate: float, duration_seconds: float, seed: int) -> Arrivals:
    """Returns the arrivals of a Poisson process, the same for the same seed.

    Given their number, the arrivals of a Poisson process are independent and uniform over the interval (Kingman 1993,
    Poisson Processes, section 2.4), so two draws make an exact one.

    Args:
        rate: mean number of arrivals per second.
        duration_seconds: length of the run.
        seed: of the random generator.
    """
    generator = np.random.default_rng(seed)
    count = generator.poisson(rate * duration_seconds)
    return np.sort(generator.uniform(0.0, duration_seconds, count))


def constant_arrivals(rate: float, duration_seconds: float) -> Arrivals:
    """Returns arrivals exactly `1 / rate` seconds apart, the first at 0."""
    return np.arange(round(rate * duration_seconds), dtype=np.float64) / rate
