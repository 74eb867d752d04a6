"""The routes of the interfaces, and how FastAPI describes them. Imports no FastAPI."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dragoman.tables import read_table

TRANSLATION, MODELS, DOCUMENTS = "Translation", "Models", "Documents"
GLOSSARIES, MEMORIES = "Glossaries", "Memories"
OPEN_INFERENCE, DEEPL, LIBRETRANSLATE = "Open Inference Protocol", "DeepL", "LibreTranslate"
GOOGLE, MICROSOFT = "Google Translate", "Microsoft Translator"
KEYS, OPERATION = "API keys", "Operation"
# Descriptions of the tags of the OpenAPI document, in its order.
TAGS: dict[str, str] = read_table(__file__, "route_table.yaml")
# The OpenAPI document leaves such routes out.
HIDDEN = {"include_in_schema": False}


class Route(NamedTuple):
    """One route."""

    method: str
    path: str
    handler: Callable[..., Any]


Describe = Callable[[Route], Mapping[str, Any]]


def described_by_name(describe: Callable[[], Mapping[str, Mapping[str, Any]]]) -> Describe:
    """Returns a function for a `RouteGroup`, given one that returns what describes each handler by its name."""
    return lambda route: describe()[route.handler.__name__]


class RouteGroup(NamedTuple):
    """Routes that belong together.

    Attributes:
        routes: in the order of the OpenAPI document.
        describe: returns FastAPI's further arguments for a route, as late as for the document, because they take much
            more memory than the route.
        tag: of the routes in the document; see `TAGS`.
    """

    routes: tuple[Route, ...]
    describe: Describe
    tag: str = TRANSLATION
