"""The OpenAPI descriptions of DeepL's routes."""

from http import HTTPStatus
from typing import Any

from dragoman.serve.compat.deepl.languages import RESOURCES
from dragoman.serve.compat.deepl.request import PARAMETERS
from dragoman.serve.compat.deepl.stored_documentation import DOCUMENT_ROUTES, GLOSSARY_ROUTES, Route
from dragoman.serve.edge.bodies import TIMEOUT_PARAMETER
from dragoman.serve.edge.form_parser import FORM, MULTIPART
from dragoman.serve.edge.interface import error_documentation
from dragoman.serve.edge.schemas import BOOLEAN, INTEGER, JSON, TEXT, content_of, list_of, object_of

_ERRORS = error_documentation(
    object_of("message", message=TEXT, detail=TEXT),
    "A parameter is missing, unknown or invalid.",
    "The API key is missing or wrong.",
    {404: "The glossary or document is unknown.", 456: "The API key has used its characters."},
)
_TRANSLATION = object_of(
    "detected_source_language text billed_characters",
    detected_source_language=TEXT,
    text=TEXT,
    billed_characters=INTEGER,
    model_type_used=TEXT,
    tag_handling_version=TEXT,
)
_SIDE = {"type": {"type": "string", "enum": ["source", "target"], "default": "source"}}
_LANGUAGE = object_of(language=TEXT, name=TEXT, supports_formality=BOOLEAN)
_RESOURCE_LANGUAGE = object_of(lang=TEXT, name=TEXT, usable_as_source=BOOLEAN, usable_as_target=BOOLEAN)
_ROUTES: dict[str, Route] = {
    "translate": (
        "Translates a list of texts",
        object_of("translations", translations=list_of(_TRANSLATION)),
        {name: dict(kind.schema) for name, kind in PARAMETERS.items()},
        ("text", "target_lang"),
    ),
    "languages": ("Lists source or target languages", list_of(_LANGUAGE), _SIDE, ()),
    "usage": ("Returns the counted characters", object_of(character_count=INTEGER, character_limit=INTEGER), {}, ()),
    "languages_by_resource": (
        "Lists the languages of a resource with their features",
        list_of(_RESOURCE_LANGUAGE),
        {"resource": {"type": "string", "enum": list(RESOURCES)}},
        ("resource",),
    ),
    "resources": ("Lists the resources", list_of(object_of(name=TEXT, features={"type": "array"})), {}, ()),
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
        body = {**object_of(**properties), "required": list(required), "additionalProperties": False}
        media_types = (MULTIPART,) if handler == _UPLOAD else (JSON, FORM)
        extra["requestBody"] = {"content": content_of(body, media_types)}
    status, media_type = _STATUSES.get(handler, int(HTTPStatus.OK)), _MEDIA_TYPES.get(handler, JSON)
    content = {} if status == HTTPStatus.NO_CONTENT else {"content": content_of(response, (media_type,))}
    ok = {status: {"description": "Successful Response", **content}}
    return {"summary": summary, "status_code": status, "responses": {**ok, **_ERRORS}, "openapi_extra": extra}
