"""Clients of the two interfaces for the generator, to which a failure is an outcome and not an exception.

Neither retries, because a retried request would be two. An outcome is named after the gRPC status, or after the HTTP
status and the server's reason: `RESOURCE_EXHAUSTED`, `429 queue_full`. Called by `loadtest.load`.
"""

import itertools
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from http import HTTPStatus

import aiohttp
import grpc.aio
from pydantic import BaseModel, ValidationError

from loadtest.generator import OK
from protos.translation_pb2 import TranslateRequest
from protos.translation_pb2_grpc import TranslationServiceStub

TRANSLATE_PATH = "/v1/translate"
TIMEOUT_HEADER = "x-request-timeout-ms"
WRONG_COUNT = "answer holds another number of translations"
# Without it, channels to one address share one connection.
_OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)


@dataclass(frozen=True, slots=True)
class Languages:
    """What is asked of a server that translates in many directions, as ISO 639-1 codes; the names are the contract's.

    A server with a single direction takes both to be empty.
    """

    source_language: str = ""
    target_language: str = ""


_ONLY_DIRECTION = Languages()


class GrpcClient:
    """Sends requests over several gRPC channels in turn."""

    def __init__(self, channels: Sequence[grpc.aio.Channel], timeout_seconds: float, languages: Languages) -> None:
        self._stubs = itertools.cycle([TranslationServiceStub(channel) for channel in channels])
        self._timeout_seconds = timeout_seconds
        self._languages = asdict(languages)

    async def send(self, texts: Sequence[str]) -> str:
        """Returns OK, or the gRPC status."""
        request = TranslateRequest(text=texts, **self._languages)
        try:
            response = await next(self._stubs).Translate(request, timeout=self._timeout_seconds)
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return OK if len(response.translations) == len(texts) else WRONG_COUNT


class _Answer(BaseModel):
    """What the generator looks at in the JSON of an answer, be it a translation or an error."""

    translations: tuple[object, ...] = ()
    reason: str = ""


class RestClient:
    """Sends requests over REST; a connection carries one request at a time and is used again."""

    def __init__(self, session: aiohttp.ClientSession, languages: Languages) -> None:
        self._session = session
        self._languages = asdict(languages)

    async def send(self, texts: Sequence[str]) -> str:
        """Returns OK, the HTTP status and the server's reason, or the name of the network error."""
        body_sent = {"text": list(texts), **self._languages}
        try:
            async with self._session.post(TRANSLATE_PATH, json=body_sent) as response:
                status, body = response.status, await response.read()
        except TimeoutError:
            return "timeout"
        except (aiohttp.ClientError, OSError) as error:
            return type(error).__name__
        try:
            answer = _Answer.model_validate_json(body)
        except ValidationError:
            return f"{status} with another body than the service's"
        if status != HTTPStatus.OK:
            return f"{status} {answer.reason}".strip()
        return OK if len(answer.translations) == len(texts) else WRONG_COUNT


@asynccontextmanager
async def open_grpc_client(
    target: str, connections: int, timeout_seconds: float, languages: Languages = _ONLY_DIRECTION
) -> AsyncIterator[GrpcClient]:
    """Opens `connections` channels to `target`, each with a TCP connection of its own, and closes them."""
    async with AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(target, options=_OWN_CONNECTION))
            for _ in range(connections)
        ]
        yield GrpcClient(channels, timeout_seconds, languages)


@asynccontextmanager
async def open_rest_client(
    base_url: str, timeout_seconds: float, languages: Languages = _ONLY_DIRECTION
) -> AsyncIterator[RestClient]:
    """Opens a session without a limit of connections: a request must never wait for another one's answer."""
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=timeout_seconds)
    # gRPC tells the server the deadline by itself; here a header does, so that no translation outlives its client.
    headers = {TIMEOUT_HEADER: str(math.ceil(timeout_seconds * 1000))}
    async with aiohttp.ClientSession(base_url, connector=connector, timeout=timeout, headers=headers) as session:
        yield RestClient(session, languages)
