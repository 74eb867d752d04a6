"""Parameters of a request in any of the forms that clients of other servers use: JSON, form, multipart or query.

A JSON body holds all parameters. Otherwise the query and the form hold them together; the query comes first.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from starlette.requests import Request

from dragoman.serve.edge.bodies import SMALL_BODY_BYTES
from dragoman.serve.edge.form_parser import (
    FORM,
    MULTIPART,
    PARSE_FORM,
    Form,
    Upload,
    media_type_of,
    parse_form,
    parse_pairs,
)
from dragoman.serve.edge.reader import RequestReader
from dragoman.serve.edge.schemas import JSON
from dragoman.serve.edge.value_limit import check_json
from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.sandbox.frames import Item
from dragoman.serve.sandbox.sandbox import Sandbox
from dragoman.serve.sandbox.worker import MEBIBYTE, Limits, Refusal
from dragoman.serve.translation.large_work import run_part

# A form is in memory as the body, as frames and as values.
_BASE_BYTES = 32 * MEBIBYTE
_MEMORY_PER_BYTE = 3
_BASE_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters by name.

    Attributes:
        typed: the values come from JSON, one per name; otherwise they are texts, and a name may have several.
        values: at least one per name.
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
    """Reads requests with up to `max_values` parameters."""

    def __init__(self, reader: RequestReader, sandbox: Sandbox, max_values: int) -> None:
        """Creates the reader; forms of more than 64 KiB are parsed in the sandbox."""
        self._reader = reader
        self._sandbox = sandbox
        self._max_values = max_values

    async def read(self, request: Request) -> tuple[Parameters, float]:
        """Returns the parameters, and the deadline on the clock of `time.monotonic`.

        The request is in flight from then on.

        Raises ServiceError if the body is invalid, too large, late or incomplete, or the request is not accepted;
        HTTPException if the content encoding is unknown, or the body does not arrive in its time.
        """
        data, deadline_seconds = await self._reader.read(request)
        return await self._parse(request, data, deadline_seconds), deadline_seconds

    async def read_file(self, request: Request) -> tuple[Parameters, bytes | None]:
        """Returns the parameters, and the body; None in place of a multipart form. Raises errors as `read`."""
        data, deadline_seconds = await self._reader.read(request)
        if media_type_of(request.headers.get("content-type", "")) == MULTIPART:
            return await self._parse(request, data, deadline_seconds), None
        return parse_parameters(b"", "", request.scope["query_string"], self._max_values), data

    async def _parse(self, request: Request, data: bytes, deadline_seconds: float) -> Parameters:
        content_type, query = request.headers.get("content-type", ""), request.scope["query_string"]
        if len(data) <= SMALL_BODY_BYTES:
            return parse_parameters(data, content_type, query, self._max_values)
        if media_type_of(content_type) not in (FORM, MULTIPART):
            return await run_part(deadline_seconds, parse_parameters, data, content_type, query, self._max_values)
        of_query = parse_pairs("query", query, self._max_values)
        return _join(of_query, await self._parse_large(data, content_type, deadline_seconds))

    async def _parse_large(self, data: bytes, content_type: str, deadline_seconds: float) -> Form:
        limits = Limits.of_input(
            len(data),
            memory_bytes=_BASE_BYTES + _MEMORY_PER_BYTE * len(data),
            output_bytes=MEBIBYTE + 2 * len(data),
            base_seconds=_BASE_SECONDS,
        )
        items = (content_type, self._max_values, data)
        try:
            found = await self._sandbox.call(
                PARSE_FORM, items, purpose="forms", limits=limits, convert=_part, deadline_seconds=deadline_seconds
            )
        except Refusal as refusal:
            raise InvalidRequestError(*refusal.args) from refusal
        form, rest = Form(), iter(found)
        for part in rest:
            if len(part) == len(("name", "value")):
                form.fields.append(part)
            else:
                form.uploads[part[0]] = Upload(part[1], next(rest))
        return form


def _part(item: Item) -> Item:
    return item if isinstance(item, bytes) else tuple(item)


def parse_parameters(data: bytes, content_type: str, query: bytes, max_values: int) -> Parameters:
    """Returns the parameters of a body and a query. A body of an unknown type is ignored.

    Raises InvalidRequestError if the body or the query is malformed or has too many values.
    """
    media_type = media_type_of(content_type)
    if media_type == JSON or (media_type.startswith("application/") and media_type.endswith("+json")):
        return Parameters(typed=True, values=_parse_json(data, max_values))
    return _join(parse_pairs("query", query, max_values), parse_form(data, content_type, max_values))


def _join(query: list[tuple[str, str]], form: Form) -> Parameters:
    values: dict[str, list[object]] = {}
    for name, value in (*query, *form.fields):
        values.setdefault(name, []).append(value)
    return Parameters(typed=False, values=values, uploads=form.uploads)


def _parse_json(data: bytes, max_values: int) -> dict[str, list[object]]:
    check_json(data, max_values)
    try:
        content = json.loads(data.decode())
        if b"\\u" in data:
            json.dumps(content, ensure_ascii=False).encode()  # refuses lone surrogates
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError("body", "expected JSON in UTF-8") from error
    if not isinstance(content, dict):
        raise InvalidRequestError("body", "expected a JSON object")
    return {name: [value] for name, value in content.items() if value is not None}
