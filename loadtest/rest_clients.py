"""Clients of the REST interface for the generator, to which a failure is an outcome and not an exception.

Opened by `loadtest.clients`.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

import aiohttp
from pydantic import BaseModel, ValidationError

from loadtest.client import NO_RESULT, Answer, outcome_of
from loadtest.request import LoadRequest
from serve.clients.channel import DEFAULTS, ClientSettings

TRANSLATE_PATH = "/v1/translate"
STREAM_PATH = "/v1/translate/stream"
TIMEOUT_HEADER = "x-request-timeout-ms"
TIMED_OUT = "timeout"


class _Body(BaseModel):
    """What the generator looks at in the JSON of an answer, be it a translation or an error."""

    translations: tuple[object, ...] = ()
    reason: str = ""


class RestClient:
    """Sends requests over REST, each answered as a whole; a connection carries one at a time and is used again."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def send(self, request: LoadRequest) -> Answer:
        """Returns OK, the HTTP status and the server's reason, or the name of the network error."""
        try:
            async with self._session.post(TRANSLATE_PATH, **_arguments(request)) as response:
                return Answer(_outcome(response.status, await response.read(), request))
        except TimeoutError:
            return Answer(TIMED_OUT)
        except (aiohttp.ClientError, OSError) as error:
            return Answer(type(error).__name__)


class RestStreamClient:
    """Sends requests over REST, whose translations come as server-sent events."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def send(self, request: LoadRequest) -> Answer:
        """Returns as `RestClient` does, and when the first text came."""
        now = asyncio.get_running_loop().time
        first_seconds: float | None = None
        outcome = NO_RESULT
        try:
            async with self._session.post(STREAM_PATH, **_arguments(request)) as response:
                if response.status != HTTPStatus.OK:
                    return Answer(_outcome(response.status, await response.read(), request))
                async for name, data in _events(response.content):
                    if name == "error":
                        return Answer(_outcome(int(json.loads(data)["status"]), data, request), first_seconds)
                    first_seconds = first_seconds or now()
                    if name == "result":
                        outcome = _outcome(response.status, data, request)
        except TimeoutError:
            return Answer(TIMED_OUT, first_seconds)
        except (aiohttp.ClientError, OSError) as error:
            return Answer(type(error).__name__, first_seconds)
        return Answer(outcome, first_seconds)


@asynccontextmanager
async def open_session(base_url: str, security: ClientSettings = DEFAULTS) -> AsyncIterator[aiohttp.ClientSession]:
    """Opens a session without a limit of connections: a request must never wait for another one's answer.

    Raises:
        OSError: if a file of the settings cannot be used.
    """
    connector = aiohttp.TCPConnector(limit=0, ssl=security.ssl_context() or True)
    # No event is longer than an answer, of which aiohttp would take lines of at most 128 KiB.
    async with aiohttp.ClientSession(
        base_url, connector=connector, headers=dict(security.metadata), read_bufsize=1 << 22
    ) as session:
        yield session


def body_of(request: LoadRequest) -> dict[str, Any]:
    """Returns a request as REST sends it, in JSON."""
    options = {"options": dict(request.options)} if request.options else {}
    return {"text": list(request.texts), **asdict(request.languages), **options}


def _arguments(request: LoadRequest) -> Mapping[str, Any]:
    """Returns what a request is sent with."""
    return {
        "json": body_of(request),
        "timeout": aiohttp.ClientTimeout(total=request.timeout_seconds),
        # gRPC tells the server the deadline by itself; here a header does, so that no translation outlives its client.
        "headers": {TIMEOUT_HEADER: str(math.ceil(request.timeout_seconds * 1000))},
    }


def _outcome(status: int, body: bytes, request: LoadRequest) -> str:
    try:
        answer = _Body.model_validate_json(body)
    except ValidationError:
        return f"{status} with another body than the service's"
    if status != HTTPStatus.OK:
        return f"{status} {answer.reason}".strip()
    return outcome_of(len(answer.translations), request)


async def _events(content: aiohttp.StreamReader) -> AsyncIterator[tuple[str, bytes]]:
    """Yields name and data of each event; those of our server have one line of data, comments have none."""
    name, data = "", b""
    async for line in content:
        field, _, value = line.rstrip(b"\r\n").partition(b": ")
        if field == b"event":
            name = value.decode()
        elif field == b"data":
            data = value
        elif not field and name:
            yield name, data
            name, data = "", b""
