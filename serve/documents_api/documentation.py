"""OpenAPI descriptions of the document routes."""

from http import HTTPStatus
from typing import Any

from dragoman.serve.edge.bodies import TIMEOUT_PARAMETER, inlined_schema
from dragoman.serve.edge.schemas import BINARY, content_of, object_of
from dragoman.serve.translation.fields import Fields

_FILE = content_of(BINARY, ("application/octet-stream",))
_TEXTS = {
    "source_language": {
        "type": "string",
        "description": "ISO 639-1 code, or `auto`: the server detects the language of the document. May be empty if a "
        "single language is translated into the target language.",
    },
    "target_language": {"type": "string", "description": "ISO 639-1 code of the target language."},
    "name": {"type": "string", "description": "Name of the file, whose end names the format."},
}


def create_documentation(options: type[Fields]) -> dict[str, Any]:
    """Returns the OpenAPI request of `POST /v1/documents`."""
    fields = {**_TEXTS, **inlined_schema(options)["properties"]}
    form = object_of("file target_language", file={**BINARY, "description": "The document."}, **fields)
    query = [
        {
            "name": name,
            "in": "query",
            "schema": {key: value for key, value in field.items() if key != "description"},
            "description": field.get("description", ""),
        }
        for name, field in fields.items()
    ]
    content = {**content_of(form, ("multipart/form-data",)), **_FILE}
    return {"requestBody": {"required": True, "content": content}, "parameters": [*query, TIMEOUT_PARAMETER]}


def result_documentation() -> dict[int | str, dict[str, Any]]:
    """Returns the OpenAPI response of the result."""
    return {int(HTTPStatus.OK): {"description": "The translated document.", "content": _FILE}}
