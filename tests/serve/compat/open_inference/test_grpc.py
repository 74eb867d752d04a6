"""The Open Inference Protocol over real gRPC connections. Triton's clients are tested in `test_clients`."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import grpc
import pytest

from dragoman.protos.inference_pb2 import (
    InferParameter,
    ModelInferRequest,
    ModelInferResponse,
    ModelStreamInferResponse,
    ServerReadyRequest,
    ServerReadyResponse,
)
from tests.support.fake_bundles import LONG_TEXT
from tests.support.live import WAIT_SECONDS, GatedModel, LiveService, eventually, run_service

SERVICE = "/inference.GRPCInferenceService"


def request_of(*texts: str, **fields: Any) -> ModelInferRequest:
    tensor = ModelInferRequest.InferInputTensor(name="text_input", datatype="BYTES", shape=[len(texts)])
    tensor.contents.bytes_contents.extend(text.encode() for text in texts)
    parameters = fields.pop("parameters", {})
    request = ModelInferRequest(model_name="fake", inputs=[tensor], **fields)
    for name, value in parameters.items():
        request.parameters[name].CopyFrom(value)
    return request


def call(live: LiveService, request: ModelInferRequest | bytes, timeout: float = WAIT_SECONDS) -> ModelInferResponse:
    data = request if isinstance(request, bytes) else request.SerializeToString()
    with live.grpc_channel() as channel:
        method: Any = channel.unary_unary(f"{SERVICE}/ModelInfer", response_deserializer=ModelInferResponse.FromString)
        response: ModelInferResponse = method(data, timeout=timeout)
    return response


def failure(live: LiveService, request: ModelInferRequest | bytes, timeout: float = WAIT_SECONDS) -> tuple[str, str]:
    """Returns the status of a failing call and the field that its message names."""
    with pytest.raises(grpc.RpcError) as raised:
        call(live, request, timeout)
    error: Any = raised.value
    return error.code().name, error.details().partition(": ")[0]


class Stream:
    """An open stream and its requests."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.requests: Queue[ModelInferRequest | bytes | None] = Queue()
        method: Any = channel.stream_stream(
            f"{SERVICE}/ModelStreamInfer", response_deserializer=ModelStreamInferResponse.FromString
        )
        self.answers = method(self._sent(), timeout=WAIT_SECONDS)

    def _sent(self) -> Iterator[bytes]:
        while (request := self.requests.get()) is not None:
            yield request if isinstance(request, bytes) else request.SerializeToString()


def test_contents_that_come_as_lists_are_answered_as_lists(live: LiveService) -> None:
    """The request is counted by its method."""
    texts = ["alpha beta.", LONG_TEXT]
    response = call(live, request_of(*texts, id="a-1"))
    live.settle()
    assert live.metric("requests_total", method="infer", protocol="grpc", outcome="ok") == 1
    translations = live.post({"text": texts}).json()["translations"]
    assert (response.id, response.model_name, list(response.raw_output_contents)) == ("a-1", "fake", [])
    text, score, *_, target_tokens = response.outputs
    expected = [translation["text"] for translation in translations]
    assert [content.decode() for content in text.contents.bytes_contents] == expected
    assert list(score.contents.fp64_contents) == [translation["score"] for translation in translations]
    assert list(target_tokens.contents.int64_contents) == [translation["target_tokens"] for translation in translations]
    assert response.parameters["total_seconds"].double_param > 0


def test_numbers_of_every_kind_are_parameters(live: LiveService) -> None:
    parameters = {
        "beam_size": InferParameter(uint64_param=2),
        "length_penalty": InferParameter(double_param=0.5),
        "max_target_tokens": InferParameter(int64_param=3),
    }
    response = call(live, request_of(LONG_TEXT, parameters=parameters))
    options = {"beam_size": 2, "length_penalty": 0.5, "max_target_tokens": 3}
    (translation,) = live.post({"text": LONG_TEXT, "options": options}).json()["translations"]
    assert response.outputs[0].contents.bytes_contents[0].decode() == translation["text"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda request: request.inputs[0].contents.bytes_contents.append(b"\xff"), "text_input[1]"),
        (lambda request: request.inputs.add(), "inputs"),
        (lambda request: request.raw_input_contents.append(b"\0\0\0\0"), "inputs[0].contents"),
        (lambda request: request.raw_input_contents.extend([b"", b""]), "raw_input_contents"),
        (lambda request: request.inputs[0].shape.append(2), "inputs[0].shape"),
        (lambda request: request.outputs.add(name="logits"), "outputs[0].name"),
        (lambda request: request.parameters["beam"].Clear(), "parameters.beam"),
        (lambda request: request.parameters["stream"].MergeFrom(InferParameter(bool_param=True)), "parameters.stream"),
    ],
)
def test_the_invalid_field_is_named(live: LiveService, change: Any, field: str) -> None:
    request = request_of("alpha.")
    change(request)
    assert failure(live, request) == ("INVALID_ARGUMENT", field)


def test_the_earlier_of_deadline_and_timeout_counts(gated: LiveService, model: GatedModel) -> None:
    model.gate.clear()
    timeout = {"timeout": InferParameter(int64_param=50_000)}
    assert failure(gated, request_of("alpha.", parameters=timeout))[0] == "DEADLINE_EXCEEDED"
    assert failure(gated, request_of("alpha."), timeout=0.05)[0] == "DEADLINE_EXCEEDED"


def test_requests_of_a_stream_run_concurrently(bundle_path: Path) -> None:
    """One engine is blocked; the other engine serves the second request."""
    slow, fast = GatedModel(1), GatedModel(1)
    with run_service(bundle_path, [slow, fast], queue_limit=4) as service, service.grpc_channel() as channel:
        for model in (slow, fast):
            model.stepping.clear()
            model.gate.clear()
        stream = Stream(channel)
        for name in ("a", "b"):
            stream.requests.put(request_of(LONG_TEXT, id=name))
        assert slow.stepping.wait(WAIT_SECONDS)
        assert fast.stepping.wait(WAIT_SECONDS)
        fast.gate.set()
        first = next(stream.answers)
        slow.gate.set()
        second = next(stream.answers)
        stream.requests.put(None)
        assert {first.infer_response.id, second.infer_response.id} == {"a", "b"}
        assert list(stream.answers) == []


def test_a_stream_survives_malformed_bytes(live: LiveService) -> None:
    with live.grpc_channel() as channel:
        stream = Stream(channel)
        stream.requests.put(b"\xff\xff")
        assert next(stream.answers).error_message.startswith("request: ")
        stream.requests.put(request_of("alpha."))
        assert next(stream.answers).infer_response.parameters["triton_final_response"].bool_param
        stream.requests.put(None)
        assert list(stream.answers) == []


def test_a_client_that_leaves_its_stream_frees_the_slots(gated: LiveService, model: GatedModel) -> None:
    model.gate.clear()
    with gated.grpc_channel() as channel:
        stream = Stream(channel)
        for _ in range(2):
            stream.requests.put(request_of(LONG_TEXT))
        assert model.stepping.wait(WAIT_SECONDS)
        eventually(lambda: gated.metric("sequences_waiting") == 1)
        stream.answers.cancel()
        stream.requests.put(None)
    gated.settle()
    assert gated.metric("requests_total", method="infer_stream", outcome="cancelled") == 2
    model.gate.set()
    eventually(lambda: gated.metric("sequences_running") == 0)
    eventually(lambda: gated.metric("sequences_waiting") == 0)
    assert len(model.steps) == 1


def test_requests_above_the_limit_of_a_stream_wait(bundle_path: Path) -> None:
    with run_service(bundle_path, queue_limit=100) as service, service.grpc_channel() as channel:
        stream = Stream(channel)
        with ThreadPoolExecutor(1) as pool:
            answers = pool.submit(list, stream.answers)
            for number in range(200):
                stream.requests.put(request_of("alpha beta.", id=str(number)))
            stream.requests.put(None)
            received = answers.result(WAIT_SECONDS)
        assert [item.error_message for item in received if item.error_message] == []
        assert {item.infer_response.id for item in received} == set(map(str, range(200)))


def test_a_lame_duck_is_not_ready(bundle_path: Path) -> None:
    with run_service(bundle_path, lame_duck_seconds=60) as service:

        def ready() -> bool:
            with service.grpc_channel() as channel:
                method: Any = channel.unary_unary(f"{SERVICE}/ServerReady", None, ServerReadyResponse.FromString)
                return bool(method(ServerReadyRequest().SerializeToString(), timeout=WAIT_SECONDS).ready)

        assert ready()
        service.stop()
        eventually(lambda: not ready())
        service.abandon()
