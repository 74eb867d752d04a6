"""Which model translates a request: one that has the direction, or two that lead there by way of a third language.

Pure functions of names and directions. Called by `serve.registry.dispatcher`; knows neither engines nor protocols.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from serve.bundle.manifest import BundleDirection
from serve.errors import InvalidRequestError, ModelNotFoundError
from serve.translation.asked import AskedDirection
from serve.translation.request import choose_direction

# What there is to choose from: the directions of each model, by name, in the order in which models are asked.
Offers = Mapping[str, Sequence[BundleDirection]]


@dataclass(frozen=True, slots=True)
class Leg:
    """One translation by one model."""

    model: str
    source: str
    target: str


def find_leg(asked: AskedDirection, offers: Offers) -> Leg:
    """Returns what translates directly: the model that is asked for, or the first that has the direction.

    Raises:
        ModelNotFoundError: if no model has the name that is asked for.
        InvalidRequestError: if there is no such direction, or there are several.
    """
    return _find_leg(asked.source_language, asked.target_language, _first_offers(asked.model, offers))


def find_route(asked: AskedDirection, offers: Offers) -> tuple[Leg, ...]:
    """Returns the legs of a request: one, or two if there is no direction and the client allows a pivot.

    Each leg is found as by `find_leg`: a named model does both. Of several pivots, the first in the order of the
    alphabet is taken.

    Raises:
        ModelNotFoundError: if no model has the name that is asked for.
        InvalidRequestError: if there is no such direction, or there are several.
    """
    source, target = asked.source_language, asked.target_language
    first_offers = _first_offers(asked.model, offers)
    try:
        return (_find_leg(source, target, first_offers),)
    except InvalidRequestError as error:
        pivot = _find_pivot(source, target, first_offers)
        if pivot is None:
            raise
        if not asked.allow_pivot:
            hint = f"{error.problem}; with allow_pivot, it would go by way of {pivot}"
            raise InvalidRequestError(error.field, hint) from error
    return tuple(_find_leg(*pair, first_offers) for pair in ((source, pivot), (pivot, target)))


def check_model(name: str, names: Mapping[str, object]) -> None:
    """Checks that there is a model of this name.

    Raises:
        ModelNotFoundError: naming those that there are.
    """
    if name not in names:
        raise ModelNotFoundError(f"model: {name[:64]!r}, expected one of {', '.join(names)}")


def _first_offers(model: str, offers: Offers) -> dict[tuple[str, str], tuple[str, BundleDirection]]:
    """Returns the first model that has each direction, and the direction as it knows it."""
    if model:
        check_model(model, offers)
        offers = {model: offers[model]}
    first: dict[tuple[str, str], tuple[str, BundleDirection]] = {}
    for name, directions in offers.items():
        for direction in directions:
            first.setdefault((direction.source, direction.target), (name, direction))
    return first


def _find_leg(source: str, target: str, first_offers: Mapping[tuple[str, str], tuple[str, BundleDirection]]) -> Leg:
    chosen = choose_direction([direction for _, direction in first_offers.values()], source, target)
    model, _ = first_offers[chosen.source, chosen.target]
    return Leg(model, chosen.source, chosen.target)


def _find_pivot(source: str, target: str, pairs: Collection[tuple[str, str]]) -> str | None:
    if source == target:  # a text is not translated into its own language
        return None
    into = {last for first, last in pairs if first == source}
    return min((first for first, last in pairs if last == target and first in into), default=None)
