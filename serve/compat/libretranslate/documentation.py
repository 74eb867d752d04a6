"""The OpenAPI descriptions of LibreTranslate's routes."""

from http import HTTPStatus
from typing import Any

from dragoman.serve.edge.bodies import TIMEOUT_PARAMETER
from dragoman.serve.edge.form_parser import FORM, MULTIPART
from dragoman.serve.edge.interface import error_documentation
from dragoman.serve.edge.schemas import BINARY, BOOLEAN, JSON, TEXT, content_of, list_of, object_of

_GIVEN = {"type": "string", "minLength": 1}
_LANGUAGE = {**_GIVEN, "description": "Code of a language, in any case and of any region."}
_KEY = {"type": "string", "description": "API key, if the server requires one."}
_DETECTED = object_of("confidence language", confidence={"type": "number"}, language=TEXT)
_ERRORS = error_documentation(
    object_of("error", error=TEXT),
    "A parameter is missing or invalid.",
    "The API key is wrong, or the function is off.",
    {HTTPStatus.CONFLICT: "The file is not translated."},
)


def _either(one: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of one value, or of a list with a value per text."""
    return {"anyOf": [one, list_of(one)]}


def _route(
    summary: str,
    response: dict[str, Any],
    body: dict[str, Any] | None = None,
    media_types: tuple[str, ...] = (JSON, FORM, MULTIPART),
) -> dict[str, Any]:
    ok = {int(HTTPStatus.OK): {"content": content_of(response)}}
    if body is None:
        return {"summary": summary, "responses": ok}
    extra = {"requestBody": {"content": content_of(body, media_types)}, "parameters": [TIMEOUT_PARAMETER]}
    return {"summary": summary, "responses": {**ok, **_ERRORS}, "openapi_extra": extra}


_ROUTES = {
    "translate": _route(
        "Translates a text or a list of texts",
        object_of(
            "translatedText",
            translatedText=_either(TEXT),
            detectedLanguage=_either(_DETECTED),
            alternatives=_either({"anyOf": [TEXT, list_of(TEXT)]}),
        ),
        object_of(
            "q source target",
            q=_either(_GIVEN),
            source={**_LANGUAGE, "description": "Code of the source language; `auto` detects it per text."},
            target=_LANGUAGE,
            format={"type": "string", "enum": ["text", "html"], "default": "text"},
            alternatives={"type": "integer", "minimum": 0, "default": 0, "description": "Further translations."},
            api_key=_KEY,
        ),
    ),
    "detect": _route("Detects the language of a text", list_of(_DETECTED), object_of("q", q=_GIVEN, api_key=_KEY)),
    "suggest": _route(
        "Stores a better translation, if the server takes any",
        object_of("success", success=BOOLEAN),
        object_of("q s source target", q=_GIVEN, s=_GIVEN, source=_LANGUAGE, target=_LANGUAGE, api_key=_KEY),
    ),
    "translate_file": _route(
        "Translates a file",
        object_of("translatedFileUrl", translatedFileUrl=TEXT),
        object_of("file source target", file=BINARY, source=_LANGUAGE, target=_LANGUAGE, api_key=_KEY),
        (MULTIPART,),
    ),
    "download_file": {
        "summary": "Returns a translated file",
        "responses": {int(HTTPStatus.OK): {"content": content_of(TEXT, ("application/octet-stream",))}, **_ERRORS},
    },
    "languages": _route(
        "Lists the languages", list_of(object_of("code name targets", code=TEXT, name=TEXT, targets=list_of(TEXT)))
    ),
    "health": _route("Responds while the server runs", object_of("status", status=TEXT)),
    "frontend_settings": _route("Returns the settings for pages", {"type": "object"}),
}


def route_documentation(handler: str) -> dict[str, Any]:
    """Returns FastAPI's arguments for the route of a handler."""
    return _ROUTES[handler]
