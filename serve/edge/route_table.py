"""The routes of the interfaces, and how FastAPI describes them. Imports no FastAPI."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

TRANSLATION, MODELS, DOCUMENTS, GLOSSARIES = "Translation", "Models", "Documents", "Glossaries"
OPEN_INFERENCE, DEEPL, LIBRETRANSLATE = "Open Inference Protocol", "DeepL", "LibreTranslate"
KEYS, OPERATION = "API keys", "Operation"
# Tags of the OpenAPI document, in this order, with their descriptions.
TAGS = {
    TRANSLATION: "Translates, scores and aligns texts, and detects their languages.",
    MODELS: "The served models: languages, limits, and reloads.",
    DOCUMENTS: "Files that the server translates in the background. Requires `--state-dir`.",
    GLOSSARIES: "Stored terms with given translations. Requires `--state-dir`.",
    OPEN_INFERENCE: "The protocol of KServe and Triton, version 2, over REST.",
    DEEPL: "The interface of DeepL: its clients work with the address of this server.",
    LIBRETRANSLATE: "The interface of LibreTranslate: its clients work with the address of this server.",
    KEYS: "API keys with limits. Requires the administrator's key.",
    OPERATION: "Probes and metrics.",
}
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
