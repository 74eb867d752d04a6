"""The client side of a stream of requests (TranslateMany), message by message."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Queue
from typing import Any

import grpc
import pytest

from dragoman.protos.translation_pb2 import TranslateManyRequest, TranslateManyResponse, TranslateRequest
from tests.support.live import WAIT_SECONDS, LiveService

MANY_METHOD = "/dragoman.v1.TranslationService/TranslateMany"


@dataclass
class Conversation:
    """A stream of requests at the client."""

    call: Any = None
    sent: "Queue[bytes | None]" = field(default_factory=Queue)

    def send(self, item_id: str, *texts: str, timeout_seconds: float | None = None, **fields: Any) -> None:
        """Sends one request when the server reads it."""
        request = TranslateRequest(text=texts, **fields)
        self.send_bytes(
            TranslateManyRequest(id=item_id, request=request, timeout_seconds=timeout_seconds).SerializeToString()
        )

    def send_bytes(self, data: bytes) -> None:
        self.sent.put(data)

    def close(self) -> None:
        self.sent.put(None)

    def receive(self) -> TranslateManyResponse:
        answer: TranslateManyResponse = next(self.call)
        return answer

    def rest(self) -> dict[str, TranslateManyResponse]:
        """Ends the requests and returns all other responses by id."""
        self.close()
        answers = list(self.call)
        assert len({answer.id for answer in answers}) == len(answers)
        return {answer.id: answer for answer in answers}

    def failure(self) -> grpc.StatusCode:
        """Returns what the stream ends with, after its other answers."""
        with pytest.raises(grpc.RpcError):
            list(self.call)
        code: grpc.StatusCode = self.call.code()
        return code


@contextmanager
def converse(live: LiveService, timeout: float | None = WAIT_SECONDS, metadata: Any = None) -> Iterator[Conversation]:
    """Opens a stream; its connection is closed when the block ends."""
    conversation = Conversation()
    with live.grpc_channel() as channel:
        method: Any = channel.stream_stream(MANY_METHOD, response_deserializer=TranslateManyResponse.FromString)
        conversation.call = method(iter(conversation.sent.get, None), timeout=timeout, metadata=metadata)
        yield conversation
        conversation.close()
