"""What a million translated sentences cost, by the most that servers on some CPUs translate in a second.

    CPU-hours per million = 1,000,000 / (sentences per second x target utilisation x 3600) x CPUs
    price per million     = CPU-hours per million x price of a CPU-hour

The target utilisation is the share of that most at which the servers run on average: what is left is room for bursts
and for a replica that is being replaced, and is paid for all the same. Knows figures only.
"""

from dataclasses import dataclass

SENTENCES = 1_000_000
SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True)
class MillionCost:
    """Of a million sentences.

    Attributes:
        cpu_hours: hours that one CPU is rented.
        price: in the currency of a CPU-hour's; None: that is not known.
    """

    cpu_hours: float
    price: float | None


def million_cost(
    sentences_per_second: float, *, cpus: int, utilisation: float, cpu_hour_price: float | None
) -> MillionCost:
    """Returns what a million sentences cost, by the formula above.

    Args:
        sentences_per_second: the most that servers translate on all of the CPUs; above 0.
        cpus: that are paid for, whether or not they are busy.
        utilisation: the target, in (0, 1].
        cpu_hour_price: of one CPU; None: it is not known.
    """
    cpu_hours = SENTENCES / (sentences_per_second * utilisation * SECONDS_PER_HOUR) * cpus
    return MillionCost(cpu_hours, None if cpu_hour_price is None else cpu_hours * cpu_hour_price)
