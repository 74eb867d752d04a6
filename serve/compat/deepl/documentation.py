"""The OpenAPI descriptions of DeepL's routes."""

from http import HTTPStatus
from typing import Any

from dragoman.serve.compat.deepl.languages import RESOURCES
from dragoman.serve.compat.deepl.request import PARAMETERS
from dragoman.serve.compat.deepl.stored_documentation import DOCUMENT_ROUTES, GLOSSARY_ROUTES, Route
from dragoman.serve.edge.bodies import TIMEOUT_PARAMETER
from dragoman.serve.edge.form_parser import FORM, MULTIPART
from dragoman.serve.edge.interface import error_documentation
from dragoman.serve.edge.parameters import JSON

_MESSAGE = {
    "type": "object",
    "required": ["message"],
    "properties": {"message": {"type": "string"}, "detail": {"type": "string"}},
}
_ERRORS = error_documentation(
    _MESSAGE,
    "A parameter is missing, unknown or invalid.",
    "The API key is missing or wrong.",
    {404: "The glossary or document is unknown.", 456: "The API key has used its characters."},
)
_TRANSLATION = {
    "type": "object",
    "required": ["detected_source_language", "text", "billed_characters"],
    "properties": {
        "detected_source_language": {"type": "string"},
        "text": {"type": "string"},
        "billed_characters": {"type": "integer"},
        "model_type_used": {"type": "string"},
        "tag_handling_version": {"type": "string"},
    },
}
_SIDE = {"type": {"type": "string", "enum": ["source", "target"], "default": "source"}}


def _list_of(properties: dict[str, str]) -> dict[str, Any]:
    items = {"type": "object", "properties": {name: {"type": kind} for name, kind in properties.items()}}
    return {"type": "array", "items": items}


_ROUTES: dict[str, Route] = {
    "translate": (
        "Translates a list of texts",
        {
            "type": "object",
            "required": ["translations"],
            "properties": {"translations": {"type": "array", "items": _TRANSLATION}},
        },
        {name: dict(kind.schema) for name, kind in PARAMETERS.items()},
        ("text", "target_lang"),
    ),
    "languages": (
        "Lists source or target languages",
        _list_of({"language": "string", "name": "string", "supports_formality": "boolean"}),
        _SIDE,
        (),
    ),
    "usage": (
        "Returns the counted characters",
        {
            "type": "object",
            "properties": {name: {"type": "integer"} for name in ("character_count", "character_limit")},
        },
        {},
        (),
    ),
    "languages_by_resource": (
        "Lists the languages of a resource with their features",
        _list_of({"lang": "string", "name": "string", "usable_as_source": "boolean", "usable_as_target": "boolean"}),
        {"resource": {"type": "string", "enum": list(RESOURCES)}},
        ("resource",),
    ),
    "resources": ("Lists the resources", _list_of({"name": "string", "features": "array"}), {}, ()),
    **GLOSSARY_ROUTES,
    **DOCUMENT_ROUTES,
}
_STATUSES = {"create": 201, "create_one": 201, "delete": 204, "delete_dictionary": 204}
_MEDIA_TYPES = {"entries_text": "text/tab-separated-values", "result": "application/octet-stream"}
# The form of uploads; others are JSON or simple forms.
_UPLOAD = "upload"


def route_documentation(handler: str, method: str) -> dict[str, Any]:
    """Returns FastAPI's arguments for the route of a handler."""
    summary, response, properties, required = _ROUTES[handler]
    extra: dict[str, Any] = {"parameters": [TIMEOUT_PARAMETER]}
    if method in ("GET", "DELETE"):
        extra["parameters"] += [
            {"name": name, "in": "query", "required": name in required, "schema": schema}
            for name, schema in properties.items()
        ]
    elif properties:
        body = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
        media_types = (MULTIPART,) if handler == _UPLOAD else (JSON, FORM)
        extra["requestBody"] = {"content": {media_type: {"schema": body} for media_type in media_types}}
    status, media_type = _STATUSES.get(handler, int(HTTPStatus.OK)), _MEDIA_TYPES.get(handler, JSON)
    content = {} if status == HTTPStatus.NO_CONTENT else {"content": {media_type: {"schema": response}}}
    ok = {status: {"description": "Successful Response", **content}}
    return {"summary": summary, "status_code": status, "responses": {**ok, **_ERRORS}, "openapi_extra": extra}
