"""R31, hostile gRPC input: the server responds to any bytes and messages without an internal error."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.protos import inference_pb2, translation_pb2
from tests.support.live import WAIT_SECONDS, LiveService, eventually
from tests.support.promises import Measured
from tests.support.random_messages import messages, messages_like

# On a busy machine, generating messages exceeds Hypothesis's health limits.
UNTIMED = settings(database=None, suppress_health_check=list(HealthCheck))
FEW = settings(UNTIMED, max_examples=25, derandomize=True)
MANY = settings(UNTIMED, max_examples=1000)
SERVICES = [*translation_pb2.DESCRIPTOR.services_by_name.values(), *inference_pb2.DESCRIPTOR.services_by_name.values()]
_TENSOR = inference_pb2.ModelInferRequest.InferInputTensor(name="text_input", datatype="BYTES", shape=[1])
_TENSOR.contents.bytes_contents.append(b"ab ba")
_TRANSLATE = translation_pb2.TranslateRequest(text=["ab ba"])
_INFER = inference_pb2.ModelInferRequest(model_name="fake", inputs=[_TENSOR])
# Mutations of valid messages reach deeper code than random bytes.
GOOD: dict[str, Message] = {
    "Translate": _TRANSLATE,
    "TranslateStream": _TRANSLATE,
    "Score": translation_pb2.ScoreRequest(pairs=[translation_pb2.TextPair(text="ab", translation="ba")]),
    "ModelInfer": _INFER,
    "ModelStreamInfer": _INFER,
}
METHODS = [method for service in SERVICES for method in service.methods]
ALLOWED = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}


@pytest.fixture(scope="module")
def channel(finite_live: LiveService) -> Iterator[grpc.Channel]:
    with finite_live.grpc_channel() as channel:
        yield channel


def serialized(message: Message) -> bytes:
    return message.SerializeToString()


def status(channel: grpc.Channel, method: MethodDescriptor, data: bytes) -> str:
    """Sends one message and returns the name of the final status."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    kinds: Any = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, True): channel.stream_stream,
    }
    call: Any = kinds[method.client_streaming, method.server_streaming](path)
    sent = iter([data]) if method.client_streaming else data
    try:
        answer = call(sent, timeout=WAIT_SECONDS)
        if method.server_streaming:
            list(answer)
    except grpc.RpcError as error:
        failure: Any = error
        return str(failure.code().name)
    return "OK"


@pytest.mark.promise("R31")
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_input_gets_a_response(
    finite_live: LiveService, channel: grpc.Channel, method: MethodDescriptor, measured: Measured, *, thorough: bool
) -> None:
    kind = GetMessageClass(method.input_type)
    good = GOOD.get(method.name)
    made_up = [messages(kind)] if good is None else [messages(kind), messages_like(good), messages_like(good)]

    statuses: Counter[str] = Counter()

    @(MANY if thorough else FEW)
    @given(st.one_of(st.binary(max_size=60), *(item.map(serialized) for item in made_up)))
    def send(data: bytes) -> None:
        statuses[status(channel, method, data)] += 1

    send()
    if good is not None:
        statuses[status(channel, method, serialized(good))] += 1
    assert statuses.keys() <= ALLOWED
    if good is not None:
        assert {"OK", "INVALID_ARGUMENT"} <= statuses.keys() or method.client_streaming
    finite_live.settle()
    assert finite_live.metric("requests_total", outcome="internal") == 0
    eventually(lambda: finite_live.metric("sequences_running") + finite_live.metric("sequences_waiting") == 0)
    measured("R31", f"{method.name}: {statuses.total()} messages")
