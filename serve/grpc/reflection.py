"""`grpc.reflection.v1alpha.ServerReflection` with bounded streams."""

from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from dragoman.serve.errors import InvalidRequestError, RequestTooLargeError
from dragoman.serve.grpc.call import Context, send
from dragoman.serve.grpc.messages import RequestParser
from dragoman.serve.grpc.waits import LimitedWait, Waits

# Tools list a few services and close the stream.
STREAMS = 64
IDLE_SECONDS = 60.0
STREAM_MESSAGES = 1000
# A request has five fields at most.
MAX_VALUES = 16


class Reflection(reflection.aio.ReflectionServicer):
    """Describes the services to tools such as grpcurl."""

    def __init__(self, services: Iterable[str]) -> None:
        super().__init__(services)
        self._waits = Waits("message of the stream", STREAMS, IDLE_SECONDS)

    def handlers(self) -> dict[str, Any]:
        """Returns the handler of each method."""
        handler = grpc.stream_stream_rpc_method_handler(
            self.ServerReflectionInfo,
            request_deserializer=RequestParser(ServerReflectionRequest, MAX_VALUES).parse,
            response_serializer=ServerReflectionResponse.SerializeToString,
        )
        return {"ServerReflectionInfo": handler}

    async def ServerReflectionInfo(self, _: object, context: Context) -> None:  # type: ignore[override]  # noqa: N802
        """Answers the messages of a stream.

        Raises ServiceError if a message is invalid, the stream has too many messages or is idle for too long, or there
        are too many streams.
        """
        answering: Any = super().ServerReflectionInfo(
            self._read(context), context
        )  # the stub lacks its being a generator
        async with aclosing(answering) as responses:
            async for response in responses:
                await send(context, response)

    async def _read(self, context: Context) -> AsyncIterator[ServerReflectionRequest]:
        for _ in range(STREAM_MESSAGES):
            with LimitedWait(self._waits):
                message = await context.read()
            if message is grpc.aio.EOF:
                return
            if isinstance(message, InvalidRequestError):
                raise message
            yield message
        raise RequestTooLargeError(f"stream: expected at most {STREAM_MESSAGES} messages")
