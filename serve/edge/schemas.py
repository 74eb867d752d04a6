"""Pieces of the OpenAPI document, for bodies that no class describes."""

from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter

JSON = "application/json"
Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
BINARY: Schema = {"type": "string", "format": "binary"}


def list_of(item: Schema) -> Schema:
    """Returns the schema of a list."""
    return {"type": "array", "items": item}


def object_of(required: str = "", /, **properties: Schema) -> Schema:
    """Returns the schema of an object; `required`: names of the members that it must have, with blanks in between."""
    named = {"required": required.split()} if required else {}
    return {"type": "object", **named, "properties": properties}


def content_of(schema: Schema, media_types: Iterable[str] = (JSON,)) -> Schema:
    """Returns the content of a body, with the same schema for each media type."""
    return {media_type: {"schema": schema} for media_type in media_types}


def json_body(schema: Schema, *, required: bool = True, **more: Any) -> Schema:
    """Returns the `openapi_extra` of a route with a JSON body; `more`: of the body, such as its examples."""
    return {"requestBody": {"required": required, "content": {JSON: {"schema": schema, **more}}}}


def inlined_schema(body: type[Any]) -> Any:
    """Returns the schema of a body without references, which do not resolve inside the OpenAPI document."""
    schema = TypeAdapter(body).json_schema()
    return _inlined(schema, schema.pop("$defs", {}))


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inlined(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    referred = definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else {}
    own = {name: value for name, value in schema.items() if name != "$ref"}
    return {name: _inlined(value, definitions) for name, value in {**referred, **own}.items()}
