"""A REST client for the commands that talk to a running server: the like of the gRPC client, by the standard library.

Requests wait in threads, so that a client needs no other HTTP library than the one that Python brings. It retries what
a later try can mend, when the server says so. The service itself does not use it.
"""

import asyncio
import http.client
import json
import math
import time
from collections.abc import AsyncIterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Self, Unpack

from pydantic import BaseModel, Field, ValidationError

from serve.clients.channel import ClientSettings
from serve.clients.errors import NotTranslatedError
from serve.clients.grpc_client import TranslatedText
from serve.clients.wanted import Wanted, request_fields

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
    """What came back: `retry_seconds` is set if the server asks for another try."""

    status: int
    body: bytes
    retry_seconds: float | None


class HttpClient:
    """Translates texts; as many may be under way at once as there are threads."""

    def __init__(self, host: str, port: int, settings: ClientSettings, threads: Executor) -> None:
        self._host = host
        self._port = port
        self._settings = settings
        self._context = settings.ssl_context()
        self._threads = threads

    @classmethod
    @asynccontextmanager
    async def open(cls, host: str, port: int, settings: ClientSettings, in_flight: int) -> AsyncIterator[Self]:
        """Starts `in_flight` threads and stops them.

        Of the settings, this client knows time, key and TLS; it always retries.

        Raises:
            OSError: if a file of the settings cannot be used.
        """
        with ThreadPoolExecutor(in_flight, thread_name_prefix="http-client") as threads:
            yield cls(host, port, settings, threads)

    async def translate(self, text: str, **wanted: Unpack[Wanted]) -> TranslatedText:
        """Returns the best translation of one text.

        Raises:
            NotTranslatedError: if the server refused, failed or could not be reached.
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
        # Never zero, which would mean not to wait at all.
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
        raise NotTranslatedError(f"{response.status}: not an answer of the service: {shown}") from error
    raise NotTranslatedError(f"{problem.reason}: {problem.detail}")
