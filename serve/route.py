"""Which model translates a request: one that has the direction, or two that lead there by way of a third language.

Pure functions of names and directions. Called by `serve.dispatcher`; knows neither engines nor protocols.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from export.manifest import BundleDirection
from serve.asked import AskedDirection
from serve.errors import InvalidRequestError, ModelNotFoundError
from serve.request import choose_direction

# What there is to choose from: the directions of each model, by name, in the order in which models are asked.
Offers = Mapping[str, Sequence[BundleDirection]]


@dataclass(frozen=True, slots=True)
class Leg:
    """One translation by one model."""

    model: str
    source: str
    target: str


def find_route(asked: AskedDirection, offers: Offers) -> tuple[Leg, ...]:
    """Returns the legs of a request: one, or two if there is no direction and the client allows a pivot.

    A named model does every leg; else each leg is that of the first model which has its direction. Of several pivots,
    the first in the order of the alphabet is taken.

    Raises:
        ModelNotFoundError: if no model has the name that is asked for.
        InvalidRequestError: if there is no such direction, or there are several.
    """
    if asked.model:
        check_model(asked.model, offers)
        offers = {asked.model: offers[asked.model]}
    first_offers: dict[tuple[str, str], tuple[str, BundleDirection]] = {}
    for model, directions in offers.items():
        for direction in directions:
            first_offers.setdefault((direction.source, direction.target), (model, direction))
    source, target = asked.source_language, asked.target_language
    try:
        direction = choose_direction([direction for _, direction in first_offers.values()], source, target)
    except InvalidRequestError as error:
        pivot = _find_pivot(source, target, first_offers.keys())
        if pivot is None:
            raise
        if not asked.allow_pivot:
            hint = f"{error.problem}; with allow_pivot, it would go by way of {pivot}"
            raise InvalidRequestError(error.field, hint) from error
        pairs = [(source, pivot), (pivot, target)]
    else:
        pairs = [(direction.source, direction.target)]
    return tuple(Leg(first_offers[pair][0], *pair) for pair in pairs)


def check_model(name: str, names: Mapping[str, object]) -> None:
    """Checks that there is a model of this name.

    Raises:
        ModelNotFoundError: naming those that there are.
    """
    if name not in names:
        raise ModelNotFoundError(f"model: {name[:64]!r}, expected one of {', '.join(names)}")


def _find_pivot(source: str, target: str, pairs: Iterable[tuple[str, str]]) -> str | None:
    pairs = list(pairs)
    into = {middle for first, middle in pairs if first == source}
    from_there = {middle for middle, last in pairs if last == target}
    # A text is not translated into its own language.
    return None if source == target else min(into & from_there, default=None)
