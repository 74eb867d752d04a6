"""Where two systems translate the same sentences differently.

Knows no torch: what explains a difference is handed in. Called by `benchmarks.offline`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """A sentence that two systems translated differently.

    Attributes:
        sentence: its number, from 1 on.
        margin: of the narrowest decision in its search, see `benchmarks.near_ties`.
    """

    sentence: int
    margin: float


def differences(
    ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]], margin: Callable[[int], float]
) -> list[Difference]:
    """Returns the sentences whose translations differ.

    Args:
        ours: target tokens of each sentence.
        theirs: those of the other system.
        margin: returns that of a sentence, given its place in these lists.
    """
    return [
        Difference(place + 1, margin(place))
        for place, (our, their) in enumerate(zip(ours, theirs, strict=True))
        if list(our) != list(their)
    ]
