"""One open request over any protocol, its early end, and its failure in the same form over all protocols."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPConnection, HTTPResponse
from queue import Queue
from typing import Any

import grpc
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RequestInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status.rpc_status import from_call

from dragoman.protos.translation_pb2 import TranslateManyRequest, TranslateManyResponse, TranslateRequest
from tests.support.conversation import MANY_METHOD
from tests.support.live import STREAM_METHOD, TRANSLATE_METHOD, WAIT_SECONDS, LiveService


@dataclass(frozen=True)
class Way:
    """Protocol and method of a request, as the metrics name them."""

    protocol: str
    method: str

    def __str__(self) -> str:
        return f"{self.protocol} {self.method}"


REST, REST_STREAM = Way("rest", "translate"), Way("rest", "translate_stream")
GRPC, GRPC_STREAM, GRPC_MANY = Way("grpc", "translate"), Way("grpc", "translate_stream"), Way("grpc", "translate_many")
STREAMS = (REST_STREAM, GRPC_STREAM)
SINGLE_WAYS = (REST, GRPC, *STREAMS)
WAYS = (*SINGLE_WAYS, GRPC_MANY)


@dataclass(frozen=True)
class Failure:
    """Reason, message for the client, invalid field, seconds until a retry, and id of a failed request."""

    reason: str
    detail: str
    field: str | None = None
    retry_seconds: float | None = None
    request_id: str | None = None


class RestCall:
    """A request over REST."""

    def __init__(self, live: LiveService, way: Way, text: str, timeout_seconds: float) -> None:
        self._connection = HTTPConnection("127.0.0.1", live.service.http_port, timeout=WAIT_SECONDS)
        path = "/v1/translate/stream" if way is REST_STREAM else "/v1/translate"
        headers = {"content-type": "application/json", "x-request-timeout-ms": str(round(1000 * timeout_seconds))}
        self._connection.request("POST", path, json.dumps({"text": text}), headers)

    @cached_property
    def _answer(self) -> HTTPResponse:
        return self._connection.getresponse()

    def first_token(self) -> None:
        """Waits for the first event of a stream."""
        while not self._answer.readline().startswith(b"data: "):
            pass

    def leave(self) -> None:
        self._connection.close()

    def _last(self) -> Any:
        """Returns the JSON of the response or of its last event."""
        return json.loads(self._answer.read().rpartition(b"data: ")[2].partition(b"\n")[0])

    def finish(self) -> None:
        """Waits for the response and checks that the request succeeded."""
        assert self._last()["translations"]

    def failure(self) -> Failure:
        """Waits for the end of the request and returns its error."""
        problem, retry_after = self._last(), self._answer.getheader("retry-after")
        retry_seconds = None if retry_after is None else float(retry_after)
        return Failure(
            problem["reason"], problem["detail"], problem.get("field"), retry_seconds, request_id=problem["request_id"]
        )


class GrpcCall:
    """A call of Translate or TranslateStream."""

    def __init__(self, live: LiveService, way: Way, text: str, timeout_seconds: float) -> None:
        self._channel = live.grpc_channel()
        data, self._streams = TranslateRequest(text=[text]).SerializeToString(), way is GRPC_STREAM
        method: Any = self._channel.unary_stream(STREAM_METHOD)
        if not self._streams:
            unary: Any = self._channel.unary_unary(TRANSLATE_METHOD)
            method = unary.future
        self._call = method(data, timeout=timeout_seconds)

    def first_token(self) -> None:
        next(self._call)

    def cancel(self) -> None:
        self._call.cancel()

    def leave(self) -> None:
        self._channel.close()

    def finish(self) -> None:
        assert list(self._call) if self._streams else self._call.result()

    def failure(self) -> Failure:
        with suppress(grpc.RpcError):
            self.finish()
        pushback_ms = dict(self._call.trailing_metadata()).get("grpc-retry-pushback-ms")
        retry_seconds = None if pushback_ms is None else int(pushback_ms) / 1000
        status = from_call(self._call)
        if status is None:  # of the client itself
            return Failure(self._call.code().name.lower(), self._call.details())
        return failure_of(status, retry_seconds)


class ManyCall(GrpcCall):
    """A stream of TranslateMany with one request."""

    def __init__(self, live: LiveService, _: Way, text: str, timeout_seconds: float) -> None:
        self._channel = live.grpc_channel()
        self._requests: Queue[bytes | None] = Queue()
        method: Any = self._channel.stream_stream(MANY_METHOD, response_deserializer=TranslateManyResponse.FromString)
        self._call = method(iter(self._requests.get, None), timeout=WAIT_SECONDS)
        request = TranslateManyRequest(request=TranslateRequest(text=[text]), timeout_seconds=timeout_seconds)
        self._requests.put(request.SerializeToString())

    def leave(self) -> None:
        self._requests.put(None)
        super().leave()

    def finish(self) -> None:
        assert next(self._call).HasField("response")

    def failure(self) -> Failure:
        return failure_of(next(self._call).error)


@contextmanager
def open_call(live: LiveService, way: Way, text: str, timeout_seconds: float = WAIT_SECONDS) -> Iterator[Any]:
    """Sends a request; its connection is closed when the block ends."""
    kind = RestCall if way.protocol == "rest" else ManyCall if way is GRPC_MANY else GrpcCall
    call = kind(live, way, text, timeout_seconds)
    try:
        yield call
    finally:
        call.leave()


def failure_of(status: Status, retry_seconds: float | None = None) -> Failure:
    details = details_of(status)
    info, request = details[ErrorInfo], details.get(RequestInfo)
    return Failure(
        info.reason.lower(),
        status.message,
        info.metadata.get("field"),
        retry_seconds,
        request_id=None if request is None else request.request_id,
    )


def details_of(status: Status) -> dict[type[Message], Any]:
    """Returns the details of a status by kind; each kind occurs once."""
    found: dict[type[Message], Any] = {}
    for kind in (ErrorInfo, BadRequest, RetryInfo, RequestInfo):
        for detail in status.details:
            message = kind()
            if detail.Unpack(message):
                assert kind not in found
                found[kind] = message
    assert len(found) == len(status.details)
    return found
