"""Clients for commands: one text in, its translation and score out; over gRPC, over REST or in this process.

All have the same methods. The REST client runs `http.client` in threads and retries as the server asks.
"""

import asyncio
import http.client
import json
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Self, Unpack

from pydantic import BaseModel, Field, ValidationError

from serve.clients.aio import AsyncTranslationClient
from serve.clients.channel import ClientSettings
from serve.clients.errors import NotTranslatedError
from serve.clients.messages import Wanted, request_fields
from serve.errors import ServiceError
from serve.observability.logs import RequestRecord, configure_logs
from serve.registry.dispatcher import Dispatcher
from serve.scheduler.sequence import FairnessKey
from serve.settings import ServeSettings
from serve.translation.fields import SearchFields
from serve.translation.request import TranslateRequest
from serve.translation.response import TranslationDelta


@dataclass(frozen=True, slots=True)
class TranslatedText:
    """A translation and its score: the sum of natural log-probabilities, at most 0."""

    text: str
    score: float


class GrpcClient:
    """Translates texts over one channel. Any number of calls may run concurrently."""

    def __init__(self, client: AsyncTranslationClient) -> None:
        self._client = client

    @classmethod
    @asynccontextmanager
    async def open(cls, target: str, settings: ClientSettings) -> AsyncIterator[Self]:
        """Opens a channel to `host:port` and closes it.

        Raises:
            OSError: if a file of the settings cannot be read.
        """
        async with AsyncTranslationClient.open(target, settings) as client:
            yield cls(client)

    async def translate(self, text: str, **wanted: Unpack[Wanted]) -> TranslatedText:
        """Returns the best translation of one text.

        Raises:
            NotTranslatedError: if the call fails.
        """
        (translation,) = (await self._client.translate(text, **wanted)).translations
        return TranslatedText(translation.text, translation.score)

    async def stream(self, text: str, **wanted: Unpack[Wanted]) -> AsyncGenerator[str]:
        """Yields the growth of the best translation of one text.

        Raises:
            NotTranslatedError: if the call fails, possibly after some pieces.
        """
        async with aclosing(self._client.stream(text, **wanted)) as events:
            async for event in events:
                if isinstance(event, TranslationDelta):
                    yield event.text


class LocalTranslator:
    """Translates in this process with the models of the service, without its interfaces."""

    def __init__(self, dispatcher: Dispatcher, timeout_seconds: float) -> None:
        self._dispatcher = dispatcher
        self._timeout_seconds = timeout_seconds
        # A text of several sentences may need more rows than are free: as requests of one stream, texts wait for room.
        self._stream = FairnessKey()

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: ServeSettings, timeout_seconds: float) -> AsyncIterator[Self]:
        """Starts the engines and stops them; `timeout_seconds` limits each text.

        Raises:
            BundleError, GoldenMismatchError, TokenizerError: if the bundle cannot be served.
        """
        from serve.app import open_dispatcher  # noqa: PLC0415 - a client of a server needs no ONNX Runtime

        async with open_dispatcher(settings) as dispatcher:
            yield cls(dispatcher, timeout_seconds)

    async def translate(self, text: str, **wanted: Unpack[Wanted]) -> TranslatedText:
        """Returns the best translation of one text.

        Raises:
            NotTranslatedError: if the request is invalid or the model fails.
        """
        request = self._request(text, wanted)
        with _refusals():
            response = await self._dispatcher.translate(request, RequestRecord("local"))
        (translation,) = response.translations
        return TranslatedText(translation.text, translation.score)

    async def stream(self, text: str, **wanted: Unpack[Wanted]) -> AsyncGenerator[str]:
        """Yields the growth of the best translation of one text.

        Raises:
            NotTranslatedError: if the request is invalid or the model fails, possibly after some pieces.
        """
        request = self._request(text, wanted)
        with _refusals():
            async with aclosing(self._dispatcher.stream(request, RequestRecord("local"))) as events:
                async for event in events:
                    if isinstance(event, TranslationDelta):
                        yield event.text

    def _request(self, text: str, wanted: Wanted) -> TranslateRequest:
        deadline_seconds = time.monotonic() + self._timeout_seconds
        return TranslateRequest(text=(text,), deadline_seconds=deadline_seconds, fairness_key=self._stream, **wanted)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except ServiceError as error:
        raise NotTranslatedError(f"{error.reason}: {error}") from error


def open_bundle(
    bundle: Path, in_flight: int, timeout_seconds: float, options: SearchFields
) -> AbstractAsyncContextManager[LocalTranslator]:
    """Returns a translator in this process that never sheds up to `in_flight` concurrent texts.

    Args:
        bundle: folder of one or several bundles.
        in_flight: maximum number of concurrent texts.
        timeout_seconds: timeout of each text.
        options: search options of all texts.

    Raises:
        LOAD_ERRORS: on entering, if the bundle cannot be served.
    """
    configure_logs("console")
    settings = ServeSettings(bundle=bundle, queue_limit=in_flight * options.rows, alignments=options.attended)
    return LocalTranslator.open(settings, timeout_seconds)


TRANSLATE_PATH = "/v1/translate"
TIMEOUT_HEADER = "x-request-timeout-ms"
RETRY_HEADER = "retry-after"
_RETRIED = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
_SHOWN_CHARACTERS = 200


class _Translation(BaseModel):
    text: str
    score: float


class _Answer(BaseModel):
    translations: Annotated[list[_Translation], Field(min_length=1, max_length=1)]


class _Problem(BaseModel):
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class _Response:
    """A response; `retry_seconds` is set if the server asks for a retry."""

    status: int
    body: bytes
    retry_seconds: float | None


class HttpClient:
    """Translates texts over REST; the number of threads bounds concurrent calls."""

    def __init__(self, host: str, port: int, settings: ClientSettings, threads: Executor) -> None:
        self._host = host
        self._port = port
        self._settings = settings
        self._context = settings.ssl_context()
        self._threads = threads

    @classmethod
    @asynccontextmanager
    async def open(cls, host: str, port: int, settings: ClientSettings, in_flight: int) -> AsyncIterator[Self]:
        """Starts `in_flight` threads and stops them. Uses timeout, key and TLS of the settings; always retries.

        Raises:
            OSError: if a file of the settings cannot be used.
        """
        with ThreadPoolExecutor(in_flight, thread_name_prefix="http-client") as threads:
            yield cls(host, port, settings, threads)

    async def translate(self, text: str, **wanted: Unpack[Wanted]) -> TranslatedText:
        """Returns the best translation of one text.

        Raises:
            NotTranslatedError: if the call fails.
        """
        body = json.dumps(request_fields(text, wanted)).encode()
        deadline_seconds = time.monotonic() + self._settings.timeout_seconds
        loop = asyncio.get_running_loop()
        response = await loop.run_in_executor(self._threads, self._post, body, deadline_seconds)
        while response.retry_seconds is not None and time.monotonic() + response.retry_seconds < deadline_seconds:
            await asyncio.sleep(response.retry_seconds)
            response = await loop.run_in_executor(self._threads, self._post, body, deadline_seconds)
        return _read_translation(response)

    def _post(self, body: bytes, deadline_seconds: float) -> _Response:
        # A timeout of zero would make the socket non-blocking.
        remaining_seconds = max(deadline_seconds - time.monotonic(), 0.001)
        headers = {
            "content-type": "application/json",
            TIMEOUT_HEADER: str(math.ceil(remaining_seconds * 1000)),
            **dict(self._settings.metadata),
        }
        with closing(self._connect(remaining_seconds)) as connection:
            try:
                connection.request("POST", TRANSLATE_PATH, body, headers)
                response = connection.getresponse()
                content = response.read()
            except (OSError, http.client.HTTPException) as error:
                address = f"{self._host}:{self._port}"
                raise NotTranslatedError(f"{address}: {error or type(error).__name__}") from error
        retry_after = response.getheader(RETRY_HEADER, "")
        retried = response.status in _RETRIED and retry_after.isdecimal()
        return _Response(response.status, content, float(retry_after) if retried else None)

    def _connect(self, timeout_seconds: float) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout_seconds)
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout_seconds, context=self._context)


def _read_translation(response: _Response) -> TranslatedText:
    try:
        if response.status == HTTPStatus.OK:
            (translation,) = _Answer.model_validate_json(response.body).translations
            return TranslatedText(translation.text, translation.score)
        problem = _Problem.model_validate_json(response.body)
    except ValidationError as error:
        shown = response.body[:_SHOWN_CHARACTERS].decode(errors="replace")
        raise NotTranslatedError(f"{response.status}: unexpected response: {shown}") from error
    raise NotTranslatedError(f"{problem.reason}: {problem.detail}")
