"""The body of a REST request: bytes to a `TranslateBody` or `ScoreBody`, or an error that names the field.

The body is parsed here and not by the web framework, because every fault has to become one well-formed error: bytes
that are not UTF-8, JSON nested too deep, a string where a number belongs. Called by `serve.api.http_api` only.

What comes with every REST request before anybody knows what it asks for: its deadline and its body.

A body is read until its limit and no further, and so is what a compressed one becomes. Called by the handlers of every
REST interface; knows nothing of what is in a body.

What OpenAPI says of requests, beyond what the web framework can see: bodies with examples, and the timeout header.

Bodies are parsed by `serve.api.http_body`, not by the framework, which therefore cannot describe them. Called by
`serve.api.http_api` only.
"""

import asyncio
import json
import time
import zlib
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

from fastapi import Request
from pydantic import BeforeValidator, FailFast, Field, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from serve.bundle.manifest import BundleDirection
from serve.errors import CancelledError, DeadlineExceededError, InvalidRequestError, RequestTooLargeError
from serve.translation.fields import Fields, SearchFields, refusal

TIMEOUT_HEADER = "x-request-timeout-ms"
MAX_TIMEOUT_MS = 3_600_000
# What zlib is told to expect of each coding: gzip's header, or its own.
_WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


class RequestReader:
    """Reads requests within the limits of the service."""

    def __init__(self, max_body_bytes: int, default_timeout_seconds: float) -> None:
        """Keeps the limits.

        Args:
            max_body_bytes: the largest body that is read, compressed or not.
            default_timeout_seconds: how long a request may take that sets no deadline, its body included.
        """
        self._max_body_bytes = max_body_bytes
        self._default_timeout_seconds = default_timeout_seconds

    async def read(self, request: Request) -> tuple[bytes, float]:
        """Returns the body of a request, decompressed, and its deadline on the clock of `time.monotonic`.

        Raises:
            ServiceError: if the body cannot be had.
            HTTPException: if it is compressed in a way that is not known.
        """
        deadline_seconds = time.monotonic() + self._timeout_seconds(request)
        coding = _coding(request)
        try:
            async with asyncio.timeout_at(deadline_seconds):
                body = await self._read_body(request)
        except TimeoutError:
            raise DeadlineExceededError("the deadline passed before the request was complete") from None
        return (body if coding is None else self._decompress(body, coding)), deadline_seconds

    async def _read_body(self, request: Request) -> bytes:
        if int(request.headers.get("content-length", "0")) > self._max_body_bytes:
            raise self._too_large()
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > self._max_body_bytes:
                    raise self._too_large()
        except ClientDisconnect:
            raise CancelledError("the client went away") from None
        return bytes(body)

    def _decompress(self, body: bytes, coding: str) -> bytes:
        decompressor = zlib.decompressobj(_WINDOW_BITS[coding])
        try:
            content = decompressor.decompress(body, self._max_body_bytes + 1)
        except zlib.error as error:
            raise InvalidRequestError("body", f"not {coding}, as content-encoding says") from error
        if len(content) > self._max_body_bytes:
            raise self._too_large()
        if not decompressor.eof or decompressor.unused_data:
            raise InvalidRequestError("body", f"{coding} that ends too early or too late")
        return content

    def _too_large(self) -> RequestTooLargeError:
        return RequestTooLargeError(f"body: expected at most {self._max_body_bytes} bytes")

    def _timeout_seconds(self, request: Request) -> float:
        value = request.headers.get(TIMEOUT_HEADER)
        if value is None:
            return self._default_timeout_seconds
        # `isdecimal` alone would let in digits of other scripts, and `int` alone white space and underscores.
        if not (value.isascii() and value.isdecimal() and len(value) <= len(str(MAX_TIMEOUT_MS))):
            raise InvalidRequestError(TIMEOUT_HEADER, f"not a number, expected 1 to {MAX_TIMEOUT_MS}")
        if not 1 <= int(value) <= MAX_TIMEOUT_MS:
            raise InvalidRequestError(TIMEOUT_HEADER, f"{int(value)}, expected 1 to {MAX_TIMEOUT_MS}")
        return int(value) / 1000


def _coding(request: Request) -> str | None:
    """Returns how the body is compressed; None: not at all."""
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding == "identity":
        return None
    if coding not in _WINDOW_BITS:
        known = ", ".join(_WINDOW_BITS)
        problem = f"content-encoding: expected {' or '.join(_WINDOW_BITS)}"
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, problem, {"accept-encoding": known})
    return coding


Body = TypeVar("Body", bound=Fields)


def _as_list(value: object) -> object:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise PydanticCustomError("text_type", "Input should be a string or a list of strings")
    return value


# Without failing fast, a body full of wrong elements would cost a second of errors that nobody reads.
Texts = Annotated[
    list[str],
    FailFast(),
    BeforeValidator(_as_list),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
SourceLanguage = Annotated[
    str,
    Field(
        description="ISO 639-1 code of the texts' language; may be empty if only one language is translated into the "
        "wanted one."
    ),
]
TargetLanguage = Annotated[
    str,
    Field(description="ISO 639-1 code of the wanted language; may be empty if there is a single direction."),
]
ModelName = Annotated[
    str, Field(description="Name of the model; empty: the first that has the direction, in the order of /v1/models.")
]


class TranslateBody(Fields):
    """The body of `POST /v1/translate`."""

    text: Texts = Field(description="One text or a list of texts, of any number of sentences and lines.")
    source_language: SourceLanguage = ""
    target_language: TargetLanguage = ""
    target_prefix: Texts = Field(
        [],
        description="What each translation has to start with: none, or one for each text; an empty one asks nothing.",
    )
    options: SearchFields = Field(SearchFields(), description="How translations are searched for; default: greedily.")
    model: ModelName = ""
    allow_pivot: bool = Field(
        False,
        description="Whether to translate by way of a third language where there is no direction from source_language "
        "into target_language, both of which must be named then.",
    )
    split_sentences: bool = Field(
        True,
        description="Whether a text is translated sentence by sentence, keeping its lines and its white space. If not, "
        "it is taken for one sentence.",
    )


class TextPair(Fields):
    """A text and a translation of it."""

    text: str = Field(description="One sentence.")
    translation: str = Field(
        description="At most one token shorter than the model's longest translation; may be empty."
    )


class ScoreBody(Fields):
    """The body of `POST /v1/score`."""

    pairs: Annotated[list[TextPair], FailFast()] = Field(description="The texts and their translations.")
    source_language: SourceLanguage = ""
    target_language: TargetLanguage = ""
    model: ModelName = ""


def parse_body(data: bytes, kind: type[Body]) -> Body:
    """Returns the valid body.

    Raises:
        InvalidRequestError: naming the field, or `body` if it is no JSON at all.
    """
    try:
        # Not `json.loads(data)`, which would guess UTF-16 and UTF-32 too.
        content = json.loads(data.decode())
    except UnicodeDecodeError as error:
        raise InvalidRequestError("body", f"not valid UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise InvalidRequestError("body", f"not JSON: {error.msg} at character {error.pos}") from error
    except ValueError as error:
        raise InvalidRequestError("body", "not JSON that can be read: a number has too many digits") from error
    except RecursionError as error:
        raise InvalidRequestError("body", "not JSON that can be read: nested too deep") from error
    if not isinstance(content, dict):
        raise InvalidRequestError("body", "not a JSON object")
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise refusal(error) from error


TIMEOUT_PARAMETER = {
    "name": TIMEOUT_HEADER,
    "in": "header",
    "description": "Milliseconds after which the client stops waiting, and so does the server.",
    "schema": {"type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_MS},
}


def translate_documentation(direction: BundleDirection) -> dict[str, Any]:
    """Returns what `POST /v1/translate` and its stream take, with an example for each kind of search."""
    languages = {"source_language": direction.source, "target_language": direction.target}
    text = {"text": ["Good morning.", "How are you?"], **languages}
    examples = {
        "greedy": {"summary": "The most probable token at each step", "value": text},
        "beam": {
            "summary": "Beam search, with its two best translations and every token's score",
            "value": {**text, "options": {"beam_size": 4, "hypotheses": 2, "token_scores": True}},
        },
        "samples": {
            "summary": "Two translations at random, the same ones each time",
            "value": {**text, "options": {"temperature": 0.8, "top_p": 0.9, "hypotheses": 2, "seed": 7}},
        },
        "prefix": {
            "summary": "Translations that start as the client says, the second one as it likes",
            "value": {**text, "target_prefix": ["A", ""], "options": {"max_target_ratio": 3.0}},
        },
    }
    return _documentation(TranslateBody, examples)


def stream_documentation() -> dict[int | str, dict[str, Any]]:
    """Returns what `POST /v1/translate/stream` answers with."""
    events = (
        (1, "delta", '{"text_index": 0, "text": "Guten", "target_tokens": 1}'),
        (2, "delta", '{"text_index": 0, "text": " Morgen.", "target_tokens": 3, "finish_reason": "eos"}'),
        (3, "result", '{"translations": [...], "timings": {...}}'),
    )
    example = "".join(f"id: {number}\nevent: {name}\ndata: {data}\n\n" for number, name, data in events)
    description = (
        "Server-sent events: `delta` with the `text_index` of a text, the `text` that is new, the `target_tokens` so "
        "far and, in the last one of each text, the `finish_reason`; at last one `result`, which holds what "
        "`/v1/translate` answers, or one `error`, which holds a problem. Comments come while nothing else does."
    )
    content = {"text/event-stream": {"example": example}}
    return {int(HTTPStatus.OK): {"description": description, "content": content}}


def score_documentation(direction: BundleDirection) -> dict[str, Any]:
    """Returns what `POST /v1/score` takes."""
    pair = {"text": "Good morning.", "translation": "Good morning."}
    value = {"pairs": [pair], "source_language": direction.source, "target_language": direction.target}
    return _documentation(ScoreBody, {"pair": {"summary": "One pair", "value": value}})


def _documentation(body: type[Fields], examples: dict[str, Any]) -> dict[str, Any]:
    content = {"schema": inlined_schema(body), "examples": examples}
    return {
        "requestBody": {"required": True, "content": {"application/json": content}},
        "parameters": [TIMEOUT_PARAMETER],
    }


def inlined_schema(body: type[Fields]) -> Any:
    """Returns the schema of a body without references, which would lead nowhere inside of OpenAPI's."""
    schema = body.model_json_schema()
    return _inlined(schema, schema.pop("$defs", {}))


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """Returns a schema with definitions in the place of references."""
    if isinstance(schema, list):
        return [_inlined(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    referred = definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else {}
    own = {name: value for name, value in schema.items() if name != "$ref"}
    return {name: _inlined(value, definitions) for name, value in {**referred, **own}.items()}
