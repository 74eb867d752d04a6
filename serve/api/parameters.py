"""Parameters of a request in any of the forms that clients of other servers use: JSON, form, multipart or query.

A JSON body holds all parameters. Otherwise the query and the form hold them together; the query comes first.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qsl

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import Field, File, FormParser, parse_options_header
from starlette.requests import Request

from serve.api.body_parser import SMALL_BODY_BYTES
from serve.api.http_reader import RequestReader
from serve.api.value_limit import check_json
from serve.errors import InvalidRequestError
from serve.translation.turns import run_turn

JSON, FORM, MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"


class Upload(NamedTuple):
    """A file of a multipart body."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters by name.

    Attributes:
        typed: the values come from JSON, one per name; otherwise they are texts, and a name may have several.
        values: at least one per name.
        uploads: files by name.
    """

    typed: bool
    values: Mapping[str, list[object]]
    uploads: Mapping[str, Upload] = field(default_factory=dict)

    def first(self, name: str) -> object:
        """Returns the first value of a name; None if there is none."""
        return self.values.get(name, (None,))[0]

    def all(self, name: str) -> list[object]:
        """Returns the values of a name; a JSON list counts as its elements."""
        values = self.values.get(name, [])
        first = values[0] if values else None
        return first if self.typed and isinstance(first, list) else values


# Returns the parameters of an authenticated request, and its deadline on the clock of `time.monotonic`.
Receive = Callable[[Request], Awaitable[tuple[Parameters, float]]]


class ParameterReader:
    """Reads requests with up to `most_values` parameters."""

    def __init__(self, reader: RequestReader, most_values: int) -> None:
        self._reader = reader
        self._most_values = most_values

    async def read(self, request: Request) -> tuple[Parameters, float]:
        """Returns the parameters, and the deadline on the clock of `time.monotonic`; admits the request.

        Raises:
            ServiceError: if the body is invalid, too large, late or incomplete, or the request is not admitted.
            HTTPException: if the content encoding is unknown, or the body does not arrive in its time.
        """
        data, deadline_seconds = await self._reader.read(request)
        content_type, query = request.headers.get("content-type", ""), request.scope["query_string"]
        if len(data) <= SMALL_BODY_BYTES:
            return parse_parameters(data, content_type, query, self._most_values), deadline_seconds
        parsed = await run_turn(deadline_seconds, parse_parameters, data, content_type, query, self._most_values)
        return parsed, deadline_seconds


def parse_parameters(data: bytes, content_type: str, query: bytes, most_values: int) -> Parameters:
    """Returns the parameters of a body and a query. A body of an unknown type is ignored.

    Raises:
        InvalidRequestError: if the body or the query is malformed or has too many values.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type == JSON or (media_type.startswith("application/") and media_type.endswith("+json")):
        return Parameters(typed=True, values=_parse_json(data, most_values))
    pairs, uploads = _parse_pairs("query", query, most_values), dict[str, Upload]()
    if media_type == FORM:
        pairs += _parse_pairs("body", data, most_values)
    elif media_type == MULTIPART:
        boundary = parse_options_header(content_type)[1].get(b"boundary", b"")
        fields, uploads = _parse_multipart(data, boundary, most_values)
        pairs += fields
    values: dict[str, list[object]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return Parameters(typed=False, values=values, uploads=uploads)


def _parse_json(data: bytes, most_values: int) -> dict[str, list[object]]:
    check_json(data, most_values)
    try:
        content = json.loads(data.decode())
        if b"\\u" in data:
            json.dumps(content, ensure_ascii=False).encode()  # refuses lone surrogates
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError("body", "expected JSON in UTF-8") from error
    if not isinstance(content, dict):
        raise InvalidRequestError("body", "expected a JSON object")
    return {name: [value] for name, value in content.items() if value is not None}


def _parse_pairs(field: str, data: bytes, most_values: int) -> list[tuple[str, str]]:
    try:
        text = data.decode("ascii")
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=most_values)
    except ValueError as error:
        raise InvalidRequestError(field, f"expected at most {most_values} URL-encoded values in UTF-8") from error


def _parse_multipart(data: bytes, boundary: bytes, most_values: int) -> tuple[list[tuple[str, str]], dict[str, Upload]]:
    fields, uploads = list[tuple[str, str]](), dict[str, Upload]()
    left = most_values

    def count() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise FormParserError

    def on_field(part: Field) -> None:
        count()
        fields.append(((part.field_name or b"").decode(), (part.value or b"").decode()))

    def on_file(part: File) -> None:
        count()
        part.file_object.seek(0)
        name = (part.file_name or b"").decode()
        uploads.setdefault((part.field_name or b"").decode(), Upload(name, part.file_object.read()))

    try:
        config = {"MAX_MEMORY_FILE_SIZE": len(data) + 1}
        parser = FormParser(MULTIPART, on_field, on_file, boundary=boundary, config=config)
        parser.write(data)
        parser.finalize()
    except (FormParserError, ValueError) as error:
        raise InvalidRequestError("body", f"expected multipart data of at most {most_values} parts") from error
    return fields, uploads
