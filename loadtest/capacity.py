"""The highest rate that meets an objective: found by doubling, then by halving the gap between yes and no.

Knows neither requests nor time: a trial of a rate is a function. Called by the commands that look for a capacity.
"""

from collections.abc import Awaitable, Callable

# Shares of the capacity at which goodput is told.
CURVE_SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)
# A machine that does something else for a moment makes a good rate fail, and never a bad one succeed.
TRIES = 2
MOST_DOUBLINGS = 24
# Below that a trial has too few requests to tell anything.
MOST_HALVINGS = 6

# Tells whether a rate meets the objective.
Trial = Callable[[float], Awaitable[bool]]


async def find_capacity(meets: Trial, first_rate: float, tolerance: float) -> float | None:
    """Returns the highest rate that was seen to meet an objective; None if not even a small part of the first one does.

    Args:
        meets: tries a rate; what it says may be wrong now and then, but only if it says no.
        first_rate: where the search begins.
        tolerance: the search ends when the lowest rate that fails lies no more than this share above the highest one
            that does not.
    """
    low, high = await _bracket(meets, first_rate)
    if low is None or high is None:
        return low
    while high > low * (1 + tolerance):
        # Geometric, because the tolerance is a share.
        middle = (low * high) ** 0.5
        if await _try(meets, middle):
            low = middle
        else:
            high = middle
    return low


async def _bracket(meets: Trial, first_rate: float) -> tuple[float | None, float | None]:
    """Returns a rate that meets the objective and a higher one that does not; None for what was not found."""
    rate = first_rate
    if await _try(meets, rate):
        for _ in range(MOST_DOUBLINGS):
            if not await _try(meets, 2 * rate):
                return rate, 2 * rate
            rate *= 2
        return rate, None
    for _ in range(MOST_HALVINGS):
        if await _try(meets, rate / 2):
            return rate / 2, rate
        rate /= 2
    return None, rate


async def _try(meets: Trial, rate: float) -> bool:
    for _ in range(TRIES):
        if await meets(rate):
            return True
    return False


def curve_rates(capacity: float) -> list[float]:
    """Returns rates from a tenth of a capacity to twice as much."""
    return [share * capacity for share in CURVE_SHARES]
