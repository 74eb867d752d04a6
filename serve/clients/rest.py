"""The REST client for asyncio. Retries overload and shutdown after the server's `retry-after`, up to the deadline."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Self, TypeVar, Unpack

import httpx
from pydantic import TypeAdapter, ValidationError

from serve.clients.channel import DEFAULTS, ClientSettings
from serve.clients.errors import NotTranslatedError
from serve.clients.messages import Wanted, request_fields
from serve.translation.response import TranslationResponse

TRANSLATE_PATH = "/v1/translate"
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


_ANSWER, _PROBLEM = TypeAdapter(TranslationResponse), TypeAdapter(_Problem)


class RestClient:
    """Translates over REST. Any number of calls may run concurrently."""

    def __init__(self, session: httpx.AsyncClient, timeout_seconds: float) -> None:
        self._session = session
        self._timeout_seconds = timeout_seconds

    @classmethod
    @asynccontextmanager
    async def open(cls, host: str, port: int, settings: ClientSettings = DEFAULTS) -> AsyncIterator[Self]:
        """Opens a connection pool and closes it. Uses timeout, key and TLS of the settings; always retries.

        Raises:
            OSError: if a file of the settings cannot be used.
        """
        async with httpx.AsyncClient(
            base_url=httpx.URL(scheme="https" if settings.encrypted else "http", host=host, port=port),
            headers=settings.metadata,
            verify=settings.ssl_context() or False,
            timeout=None,  # noqa: S113 - `post` limits all attempts together
            limits=httpx.Limits(keepalive_expiry=IDLE_SECONDS),
            trust_env=False,
        ) as session:
            yield cls(session, settings.timeout_seconds)

    async def translate(self, text: str, **wanted: Unpack[Wanted]) -> TranslationResponse:
        """Returns the translation of one text.

        Raises:
            NotTranslatedError: if the call fails.
        """
        response = await self.post(request_fields(text, wanted))
        return _parse(response, _ANSWER)

    async def post(self, fields: Mapping[str, Any]) -> httpx.Response:
        """Sends the fields of a translation request and returns the successful response.

        Raises:
            NotTranslatedError: if the call fails.
        """
        deadline_seconds = time.monotonic() + self._timeout_seconds
        try:
            async with asyncio.timeout(self._timeout_seconds):
                response = await self._attempt(fields, deadline_seconds)
                while (pause_seconds := _pause_seconds(response)) + time.monotonic() < deadline_seconds:
                    await asyncio.sleep(pause_seconds)
                    response = await self._attempt(fields, deadline_seconds)
        except (httpx.HTTPError, TimeoutError) as error:
            address = self._session.base_url.netloc.decode()
            raise NotTranslatedError(f"{address}: {str(error) or type(error).__name__}") from error
        if response.status_code != HTTPStatus.OK:
            problem = _parse(response, _PROBLEM)
            raise NotTranslatedError(f"{problem.reason}: {problem.detail}")
        return response

    async def _attempt(self, fields: Mapping[str, Any], deadline_seconds: float) -> httpx.Response:
        remaining_seconds = deadline_seconds - time.monotonic()
        headers = {TIMEOUT_HEADER: str(max(1, math.ceil(remaining_seconds * 1000)))}
        send = partial(self._session.post, TRANSLATE_PATH, json=fields, headers=headers)
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
        raise NotTranslatedError(f"{response.status_code}: unexpected response: {shown}") from error
