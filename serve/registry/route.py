"""The choice of models for a request: one model with the direction, or two models with a pivot language.

Models are tried in the order of their offers.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import NamedTuple

from dragoman.serve.bundle.directions import Directions
from dragoman.serve.bundle.language_codes import language_code
from dragoman.serve.bundle.manifest import BundleDirection
from dragoman.serve.errors import InvalidRequestError, ModelNotFoundError
from dragoman.serve.languages.names import served_codes
from dragoman.serve.translation.fields import shown
from dragoman.serve.translation.request import ScoreRequest, TranslateRequest

# Directions that a message lists one by one; a model with more has its languages named instead.
MAX_LISTED = 1000
# Routes that are kept, and the characters of their languages.
MAX_ROUTES = 1000
MAX_ROUTE_CHARACTERS = 64

# The directions of each model by name, in the order in which models are tried.
Offers = Mapping[str, Directions]


class Hop(NamedTuple):
    """One translation by one model, in a direction of that model."""

    model: str
    direction: BundleDirection


def find_hop(request: TranslateRequest | ScoreRequest, offers: Offers) -> Hop:
    """Returns the direct translation: by the named model, or by the first model that has the direction.

    Raises ModelNotFoundError if no model has the name, InvalidRequestError if no direction or several match.
    """
    offers = _offers_of(request.model, offers)
    return _find_hop(*_languages(request, offers), offers)


def find_route(request: TranslateRequest, offers: Offers) -> tuple[Hop, ...]:
    """Returns one hop, or two if no model has the direction and the client allows a pivot.

    Each hop is chosen as by `find_hop`; a named model makes both. The alphabetically first possible pivot is used.

    Raises ModelNotFoundError if no model has the name, InvalidRequestError if no direction or several match.
    """
    offers = _offers_of(request.model, offers)
    source, target = _languages(request, offers)
    try:
        return (_find_hop(source, target, offers),)
    except InvalidRequestError as error:
        pivot = _find_pivot(source, target, offers)
        if pivot is None:
            raise
        if not request.allow_pivot:
            hint = f"{error.problem}; allow_pivot would translate through {pivot}"
            raise InvalidRequestError(error.field, hint) from error
    return tuple(_find_hop(*pair, offers) for pair in ((source, pivot), (pivot, target)))


class Routes:
    """The routes among some offers, which are found once for most requests.

    Clients may write a language in any number of ways, of any length: routes of long names are not kept.
    """

    def __init__(self, offers: Offers) -> None:
        self._offers = offers
        self._known: dict[tuple[str, str, str, bool], tuple[Hop, ...]] = {}

    def find(self, request: TranslateRequest) -> tuple[Hop, ...]:
        """Returns the result of `find_route`."""
        key = request.model, request.source_language, request.target_language, request.allow_pivot
        route = self._known.get(key)
        if route is None:
            route = find_route(request, self._offers)
            if len(self._known) < MAX_ROUTES and len(key[1]) + len(key[2]) <= MAX_ROUTE_CHARACTERS:
                self._known[key] = route
        return route


def find_sources(request: TranslateRequest, offers: Offers) -> tuple[str, tuple[str, ...]]:
    """Returns the code of the target, and the codes of languages that are translated into it, in alphabetical order.

    Raises ModelNotFoundError if no model has the name, InvalidRequestError if no target or several match.
    """
    offers = _offers_of(request.model, offers)
    target = _languages(request, offers)[1] or _only_target(offers)
    sources = _sources_of(target, offers)
    if request.allow_pivot:
        sources = sources.union(*(_sources_of(pivot, offers) for pivot in sources)) - {target}
    if not sources:
        raise _wrong_language("target", target, offers)
    return target, tuple(sorted(sources))


def has_several_sources(request: TranslateRequest, offers: Offers) -> bool:
    """Returns whether a request with a target names no source, and several languages are translated into the target.

    Raises ModelNotFoundError if no model has the name.
    """
    if request.source_language or not request.target_language:
        return False
    offers = _offers_of(request.model, offers)
    return len(_first(_matching("", _languages(request, offers)[1], offers))) > 1


def served_code(name: str, offers: Offers, more: Collection[str] = ()) -> str | None:
    """Returns the code of a language by any of its codes, in any case and of any region, or by its English name.

    Args:
        offers: None is returned for a language that they do not have.
        more: codes to try last, in lower case.
    """
    known = chain(_known_codes(name), more)
    codes = (directions.codes.get(code) for code in known for directions in offers.values())
    return next(filter(None, codes), None)


def _known_codes(name: str) -> Iterator[str]:
    # Most names are codes: the first one ends the search.
    yield language_code(name).lower()
    yield language_code(name.lower()).lower()
    yield from served_codes(name)


def _languages(request: TranslateRequest | ScoreRequest, offers: Offers) -> tuple[str, str]:
    """Returns the codes of the languages that a request names; a language that is not served stays as it is."""
    source, target = request.source_language, request.target_language
    return served_code(source, offers) or source, served_code(target, offers) or target


def _only_target(offers: Offers) -> str:
    """Returns the code of the target of all directions; empty if there are several."""
    codes = set[str]()
    for _, target in chain.from_iterable(directions.pairs() for directions in offers.values()):
        codes.add(target)
        if len(codes) > 1:
            return ""
    return codes.pop()


def _sources_of(target: str, offers: Offers) -> frozenset[str]:
    return frozenset[str]().union(*(directions.sources_of(target) for directions in offers.values())) - {target}


def check_model(name: str, names: Mapping[str, object]) -> None:
    """Checks that a model has this name; raises ModelNotFoundError with the existing names."""
    if name not in names:
        raise ModelNotFoundError(f"model: {name[:64]!r}, expected one of {', '.join(names)}")


def _offers_of(model: str, offers: Offers) -> Offers:
    if not model:
        return offers
    check_model(model, offers)
    return {model: offers[model]}


def _find_hop(source: str, target: str, offers: Offers) -> Hop:
    """Returns the hop from `source` into `target`; each may be empty where it is unambiguous.

    With several directions, only the source may be empty, and only if a single direction has the target.

    Raises InvalidRequestError if no direction or several match.
    """
    if source and target:
        for name, directions in offers.items():
            if (found := directions.find(source, target)) is not None:
                return Hop(name, found)
    into = _first(_matching("", target, offers))
    if not into or (not target and len(_first(_matching("", "", offers))) > 1):
        raise _wrong_language("target", target, offers)
    matching = _first(_matching(source, target, offers))
    if not matching and source == target:
        raise equal_languages(target)
    if len(matching) != 1:
        raise _wrong_language("source", source, offers, target)
    return matching[0]


def _matching(source: str, target: str, offers: Offers) -> Iterator[Hop]:
    """Yields the hops with the given languages, each pair of languages by its first model."""
    seen: set[tuple[str, str]] = set()
    for name, directions in offers.items():
        for direction in directions.matching(source, target):
            pair = language_code(direction.source), language_code(direction.target)
            if pair not in seen:
                seen.add(pair)
                yield Hop(name, direction)


def _first(hops: Iterable[Hop]) -> list[Hop]:
    """Returns at most two hops: enough to see whether there is exactly one."""
    return list(islice(hops, 2))


def equal_languages(language: str) -> InvalidRequestError:
    """Returns the error for a text that would be translated into its own language."""
    # Clients of DeepL expect these words.
    return InvalidRequestError("target_language", f"Source and target language are equal: {shown(language)}")


def _wrong_language(side: str, language: str, offers: Offers, target: str = "") -> InvalidRequestError:
    """Returns the error for a language, which names the directions with the target."""
    expected = ", ".join(dict.fromkeys(chain.from_iterable(_shown(offer, target) for offer in offers.values())))
    return InvalidRequestError(f"{side}_language", f"{language[:20]!r}, expected the {side} of one of {expected}")


def _shown(directions: Directions, target: str) -> list[str]:
    if len(directions) > MAX_LISTED:
        return [str(directions)]
    return list(map(str, directions.matching("", target)))


def _find_pivot(source: str, target: str, offers: Offers) -> str | None:
    if not source or not target or source == target:  # a text is not translated into its own language
        return None
    between = {hop.direction.target for hop in _matching(source, "", offers)}
    return min((item for item in between if _first(_matching(item, target, offers))), default=None)
