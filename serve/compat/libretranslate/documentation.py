"""The OpenAPI descriptions of LibreTranslate's routes."""

from http import HTTPStatus
from typing import Any

from dragoman.serve.edge.bodies import TIMEOUT_PARAMETER
from dragoman.serve.edge.form_parser import FORM, MULTIPART
from dragoman.serve.edge.interface import error_documentation
from dragoman.serve.edge.parameters import JSON

_TEXT = {"type": "string", "minLength": 1}
_LANGUAGE = {**_TEXT, "description": "Code of a language, in any case and of any region."}
_KEY = {"type": "string", "description": "API key, if the server requires one."}
_DETECTED = {
    "type": "object",
    "required": ["confidence", "language"],
    "properties": {"confidence": {"type": "number"}, "language": {"type": "string"}},
}
_STRINGS = {"type": "array", "items": {"type": "string"}}
_ERRORS = error_documentation(
    {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}},
    "A parameter is missing or invalid.",
    "The API key is wrong, or the function is off.",
    {HTTPStatus.CONFLICT: "The file is not translated."},
)


def _object(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required.split(), "properties": properties}


def _either(one: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of one value, or of a list with a value per text."""
    return {"anyOf": [one, {"type": "array", "items": one}]}


def _route(
    summary: str,
    response: dict[str, Any],
    body: dict[str, Any] | None = None,
    media_types: tuple[str, ...] = (JSON, FORM, MULTIPART),
) -> dict[str, Any]:
    ok = {int(HTTPStatus.OK): {"content": {JSON: {"schema": response}}}}
    if body is None:
        return {"summary": summary, "responses": ok}
    content = {media_type: {"schema": body} for media_type in media_types}
    extra = {"requestBody": {"content": content}, "parameters": [TIMEOUT_PARAMETER]}
    return {"summary": summary, "responses": {**ok, **_ERRORS}, "openapi_extra": extra}


_ROUTES = {
    "translate": _route(
        "Translates a text or a list of texts",
        _object(
            "translatedText",
            translatedText=_either({"type": "string"}),
            detectedLanguage=_either(_DETECTED),
            alternatives=_either({"anyOf": [{"type": "string"}, _STRINGS]}),
        ),
        _object(
            "q source target",
            q=_either(_TEXT),
            source={**_LANGUAGE, "description": "Code of the source language; `auto` detects it per text."},
            target=_LANGUAGE,
            format={"type": "string", "enum": ["text", "html"], "default": "text"},
            alternatives={"type": "integer", "minimum": 0, "default": 0, "description": "Further translations."},
            api_key=_KEY,
        ),
    ),
    "detect": _route(
        "Detects the language of a text", {"type": "array", "items": _DETECTED}, _object("q", q=_TEXT, api_key=_KEY)
    ),
    "suggest": _route(
        "Stores a better translation, if the server takes any",
        _object("success", success={"type": "boolean"}),
        _object("q s source target", q=_TEXT, s=_TEXT, source=_LANGUAGE, target=_LANGUAGE, api_key=_KEY),
    ),
    "translate_file": _route(
        "Translates a file",
        _object("translatedFileUrl", translatedFileUrl={"type": "string"}),
        _object(
            "file source target",
            file={"type": "string", "format": "binary"},
            source=_LANGUAGE,
            target=_LANGUAGE,
            api_key=_KEY,
        ),
        (MULTIPART,),
    ),
    "download_file": {
        "summary": "Returns a translated file",
        "responses": {
            int(HTTPStatus.OK): {"content": {"application/octet-stream": {"schema": {"type": "string"}}}},
            **_ERRORS,
        },
    },
    "languages": _route(
        "Lists the languages",
        {
            "type": "array",
            "items": _object("code name targets", code={"type": "string"}, name={"type": "string"}, targets=_STRINGS),
        },
    ),
    "health": _route("Responds while the server runs", _object("status", status={"type": "string"})),
    "frontend_settings": _route("Returns the settings for pages", {"type": "object"}),
}


def route_documentation(handler: str) -> dict[str, Any]:
    """Returns FastAPI's arguments for the route of a handler."""
    return _ROUTES[handler]
