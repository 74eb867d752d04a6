"""The REST client for asyncio. Retries overload and shutdown after the server's `retry-after`, up to the deadline."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal, Required, Self, TypedDict, TypeVar, Unpack

import httpx
from pydantic import TypeAdapter, ValidationError

from dragoman.serve.clients.channel import DEFAULTS, ClientSettings
from dragoman.serve.clients.messages import request_fields
from dragoman.serve.local.errors import TranslationError
from dragoman.serve.local.options import RequestFields
from dragoman.serve.translation.response import TranslationResponse

TRANSLATE_PATH = "/v1/translate"
DOCUMENTS_PATH = "/v1/documents"
POLL_SECONDS = 0.5
TIMEOUT_HEADER = "x-request-timeout-ms"
RETRY_HEADER = "retry-after"
# Shorter than that of servers, which may close an idle connection while a request is under way.
IDLE_SECONDS = 1.0
_RETRIED = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
_SHOWN_CHARACTERS = 200

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Problem:
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class _Job:
    id: str
    status: str
    progress: float
    error: str | None


class DocumentWanted(TypedDict, total=False):
    """The options of a document; absent keys have the server's defaults. See `RequestFields`.

    Keys:
        retranslate: translate texts again that the document has translated.
        ignore_tags: names of tags of HTML whose content is not translated.
        columns: columns of tables that are translated.
        csv_formulas: whether a translation in CSV that begins like a formula gets an apostrophe.
    """

    target_language: Required[str]
    source_language: str
    model: str
    allow_pivot: bool
    split_sentences: bool
    glossary: Sequence[str]
    placeholders: Sequence[str]
    preserve_formatting: bool
    retranslate: bool
    ignore_tags: Sequence[str]
    columns: Sequence[str]
    csv_formulas: Literal["escape", "keep"]


_ANSWER, _PROBLEM, _JOB = TypeAdapter(TranslationResponse), TypeAdapter(_Problem), TypeAdapter(_Job)


class RestClient:
    """Translates over REST. Any number of calls may run concurrently."""

    def __init__(self, session: httpx.AsyncClient, timeout_seconds: float) -> None:
        self._session = session
        self._timeout_seconds = timeout_seconds

    @classmethod
    @asynccontextmanager
    async def open(cls, host: str, port: int, settings: ClientSettings = DEFAULTS) -> AsyncIterator[Self]:
        """Opens a pool with timeout, key and TLS of the settings; raises OSError if a file cannot be used."""
        async with httpx.AsyncClient(
            base_url=httpx.URL(scheme="https" if settings.encrypted else "http", host=host, port=port),
            headers=settings.metadata,
            verify=settings.ssl_context() or False,
            timeout=None,  # noqa: S113 - `post` limits all attempts together
            limits=httpx.Limits(keepalive_expiry=IDLE_SECONDS),
            trust_env=False,
        ) as session:
            yield cls(session, settings.timeout_seconds)

    async def translate(self, text: str, **wanted: Unpack[RequestFields]) -> TranslationResponse:
        """Returns the translation of one text; raises TranslationError if the call fails."""
        return _parse(await self.post(request_fields(text, wanted)), _ANSWER)

    async def ask(self, method: str, path: str, kind: TypeAdapter[T], **content: Any) -> T:
        """Returns the successful answer to any JSON request.

        Args:
            content: body of the request, as for `httpx.AsyncClient.request`, such as `json`.

        Raises:
            TranslationError: if the call fails, or the answer has another form.
        """
        return _parse(await self._send(method, path, **content), kind)

    async def post(self, fields: Mapping[str, Any]) -> httpx.Response:
        """Sends a translation request and returns the successful response; raises TranslationError if it fails."""
        return await self._send("POST", TRANSLATE_PATH, json=fields)

    async def translate_document(
        self, path: Path, report: Callable[[float], object] | None = None, **wanted: Unpack[DocumentWanted]
    ) -> bytes:
        """Returns the translation of a file. The server translates it in the background, without a time limit.

        The server keeps neither the file nor its translation afterwards, also if the call is canceled.

        Args:
            path: path of the file, whose suffix is its format.
            report: function that is called with the progress, 0 to 1.

        Raises:
            TranslationError: if a call fails, or the document cannot be translated.
            OSError: if the file cannot be read.
        """
        content = await asyncio.to_thread(path.read_bytes)
        fields = {name: value if isinstance(value, list | tuple) else str(value) for name, value in wanted.items()}
        job = await self.ask("POST", DOCUMENTS_PATH, _JOB, params={"name": path.name, **fields}, content=content)
        own_path = f"{DOCUMENTS_PATH}/{job.id}"
        try:
            while job.status not in ("done", "failed"):
                await asyncio.sleep(POLL_SECONDS)
                job = await self.ask("GET", own_path, _JOB)
                if report is not None:
                    report(job.progress)
            if job.status == "failed":
                raise TranslationError(f"{path}: {job.error}")
            return (await self._send("GET", f"{own_path}/result")).content
        finally:
            with suppress(TranslationError):
                await self._send("DELETE", own_path)

    async def _send(self, method: str, path: str, **content: Any) -> httpx.Response:
        deadline_seconds = time.monotonic() + self._timeout_seconds
        attempt = partial(self._attempt, deadline_seconds, method, path, **content)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                response = await attempt()
                while (pause_seconds := _pause_seconds(response)) + time.monotonic() < deadline_seconds:
                    await asyncio.sleep(pause_seconds)
                    response = await attempt()
        except (httpx.HTTPError, TimeoutError) as error:
            address = self._session.base_url.netloc.decode()
            raise TranslationError(f"{address}: {str(error) or type(error).__name__}") from error
        if not response.is_success:
            problem = _parse(response, _PROBLEM)
            raise TranslationError(f"{problem.reason}: {problem.detail}")
        return response

    async def _attempt(self, deadline_seconds: float, method: str, path: str, **content: Any) -> httpx.Response:
        remaining_seconds = deadline_seconds - time.monotonic()
        headers = {TIMEOUT_HEADER: str(max(1, math.ceil(remaining_seconds * 1000)))}
        send = partial(self._session.request, method, path, headers=headers, **content)
        try:
            return await send()
        except httpx.RemoteProtocolError:
            return await send()  # the server closed an idle connection while the request was sent


def _pause_seconds(response: httpx.Response) -> float:
    """Returns the pause before the next attempt; infinity: none."""
    retry_after = response.headers.get(RETRY_HEADER, "")
    return float(retry_after) if response.status_code in _RETRIED and retry_after.isdecimal() else math.inf


def _parse(response: httpx.Response, kind: TypeAdapter[T]) -> T:
    try:
        return kind.validate_json(response.content)
    except ValidationError as error:
        shown = response.text[:_SHOWN_CHARACTERS]
        raise TranslationError(f"{response.status_code}: unexpected response: {shown}") from error
