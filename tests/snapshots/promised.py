"""What the interfaces promise, as lines: the server offers a line, or demands it of its clients and their files.

A promise holds if each stored offer is still an offer, and each demand is one of the stored demands. So a version may
add fields, methods and values. What goes, changes, or becomes required breaks the promise.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

Lines = Iterator[str]
# The start of a line that is no offer.
DEMANDS = "demands "


def broken(promise: str, stored: set[str], current: set[str]) -> list[str]:
    """Returns a line for each change that breaks a promise."""
    gone = [line for line in sorted(stored - current) if not line.startswith(DEMANDS)]
    new = [line for line in sorted(current - stored) if line.startswith(DEMANDS)]
    # A new object or route may demand anything.
    known = {"settings", *(re.split(r": | \| ", line)[0] for line in stored)}
    new = [line for line in new if line.removeprefix(DEMANDS).partition(" | ")[0] in known]
    return [*(f"{promise}: no longer {line}" for line in gone), *(f"{promise}: now {line}" for line in new)]


def schema_lines(document: Any, schema: Any, place: str, *, is_read: bool) -> Lines:
    """Yields types, values, defaults and fields of a schema; a field that the server always writes is an offer."""
    if "$ref" in schema:
        *_, group, name = schema["$ref"].split("/")
        schema = document.get("components", document)[group][name]
    if "type" in schema:
        yield f"{place}: {schema['type']}"
    for value in schema.get("enum", [schema["const"]] if "const" in schema else ()):
        yield f"{place}: value {json.dumps(value)}"
    if is_read and not isinstance(schema.get("default", {}), dict):
        yield f"{place}: default {json.dumps(schema['default'])}"
    for name in schema.get("required", ()):
        yield f"{DEMANDS * is_read}{place} | {name}"
    parts = [(f"{place}.{name}", field) for name, field in schema.get("properties", {}).items()]
    parts += [(place, part) for key in ("anyOf", "oneOf", "allOf") for part in schema.get(key, ())]
    inner = ((f"{place}{mark}", schema.get(key)) for key, mark in (("items", "[]"), ("additionalProperties", ".*")))
    for name, part in (*parts, *inner):
        if isinstance(part, dict):
            yield from schema_lines(document, part, name, is_read=is_read)


def manifest(schema: Any) -> Lines:
    return schema_lines(schema, schema, "manifest", is_read=True)


def rest(document: Any) -> Lines:
    paths = {path: methods for path, methods in document["paths"].items() if path.startswith("/v1/")}
    for name, route in ((f"{method.upper()} {path}", paths[path][method]) for path in paths for method in paths[path]):
        yield f"{name}"
        for parameter in route.get("parameters", ()):
            place = f"{name} {parameter['in']} {parameter['name']}"
            yield from schema_lines(document, parameter["schema"], place, is_read=True)
            yield f"{DEMANDS * parameter.get('required', False)}{name} | {parameter['in']} {parameter['name']}"
        for kind, content in route.get("requestBody", {}).get("content", {}).items():
            yield from schema_lines(document, content.get("schema", {}), f"{name} {kind}", is_read=True)
        for status, answer in route["responses"].items():
            yield f"{name} {status}"
            for content in answer.get("content", {}).values():
                yield from schema_lines(document, content.get("schema", {}), f"{name} {status}", is_read=False)


def grpc(file: FileDescriptorProto) -> Lines:
    for service in file.service:
        for method in service.method:
            streams = method.client_streaming, method.server_streaming
            yield f"{service.name}.{method.name}: {method.input_type} to {method.output_type}, streams {streams}"
    messages: list[DescriptorProto] = [*file.message_type]
    for message in messages:
        messages += message.nested_type
        for field in message.field:
            yield f"{message.name}.{field.name} = {field.number}: {field.type} {field.type_name} {field.label}"
    for enum in [*file.enum_type, *(enum for message in messages for enum in message.enum_type)]:
        yield from (f"{enum.name}.{value.name} = {value.number}" for value in enum.value)


def settings(text: str) -> Lines:
    for name, *fields in (block.splitlines() for block in re.split(r"\n(?=\S)", text)):
        for field, _, value in (line.strip().partition(": ") for line in fields):
            if field not in ("default", "limits"):
                yield f"{name}: {field} {value}"
            elif value == "PydanticUndefined":
                yield f"{DEMANDS}settings | {name}"
