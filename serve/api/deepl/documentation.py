"""The OpenAPI descriptions of DeepL's routes."""

from http import HTTPStatus
from typing import Any

from serve.api.deepl.request import PARAMETERS
from serve.api.http_body import TIMEOUT_PARAMETER
from serve.api.interface import error_documentation
from serve.api.parameters import FORM, JSON

TAG = "DeepL"

_MESSAGE = {
    "type": "object",
    "required": ["message"],
    "properties": {"message": {"type": "string"}, "detail": {"type": "string"}},
}
_ERRORS = error_documentation(
    _MESSAGE, "A parameter is missing, unknown or invalid.", "The API key is missing or wrong."
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


# Summary, response, parameters and required parameters of each handler.
_ROUTES: dict[str, tuple[str, dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
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
        {"resource": {"type": "string", "enum": ["translate_text"]}},
        ("resource",),
    ),
    "resources": ("Lists the resources", _list_of({"name": "string", "features": "array"}), {}, ()),
}


def route_documentation(handler: str, method: str) -> dict[str, Any]:
    """Returns FastAPI's arguments for the route of a handler."""
    summary, response, properties, required = _ROUTES[handler]
    extra: dict[str, Any] = {"parameters": [TIMEOUT_PARAMETER]}
    if method == "GET":
        extra["parameters"] += [
            {"name": name, "in": "query", "required": name in required, "schema": schema}
            for name, schema in properties.items()
        ]
    elif properties:
        body = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
        extra["requestBody"] = {"content": {media_type: {"schema": body} for media_type in (JSON, FORM)}}
    ok = {int(HTTPStatus.OK): {"content": {JSON: {"schema": response}}}}
    return {"summary": summary, "responses": {**ok, **_ERRORS}, "openapi_extra": extra}
