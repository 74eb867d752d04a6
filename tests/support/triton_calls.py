"""Calls with Triton's own clients, in a separate process.

Their messages have the names of ours, and one process cannot hold both: functions import them when they run. Every
function takes and returns plain values.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from queue import Queue
from typing import Any

import numpy as np

Answer = dict[str, Any]
WAIT_SECONDS = 60.0


def http_facts(url: str, model: str) -> Answer:
    """Returns all facts of the HTTP client, without translations."""
    with _http().InferenceServerClient(url) as client:
        return {**_facts(client, model), "other_ready": client.is_model_ready("other")}


def grpc_facts(target: str, model: str) -> Answer:
    """Returns the same over gRPC, in the form of JSON."""
    with _grpc().InferenceServerClient(target) as client:
        return _facts(client, model, as_json=True)


def _facts(client: Any, model: str, **form: bool) -> Answer:
    return {
        "live": client.is_server_live(),
        "ready": client.is_server_ready(),
        "model_ready": client.is_model_ready(model),
        "server": client.get_server_metadata(**form),
        "model": client.get_model_metadata(model, **form),
        "config": client.get_model_config(model, **form),
        "index": client.get_model_repository_index(**form),
    }


def http_infer(
    url: str, model: str, texts: Sequence[str], *, shape: Sequence[int], binary: bool = True, **options: Any
) -> Answer:
    with _http().InferenceServerClient(url) as client:
        tensor = _tensor(_http(), texts, shape, binary_data=binary)
        return _answer(lambda: client.infer(model, [tensor], **_outputs(_http(), options)))


def http_async_infer(url: str, model: str, requests: Sequence[Sequence[str]]) -> list[Answer]:
    with _http().InferenceServerClient(url, concurrency=len(requests)) as client:
        begun = [
            client.async_infer(model, [_tensor(_http(), texts, [len(texts)])], request_id=str(number))
            for number, texts in enumerate(requests)
        ]
        return [_answer(item.get_result) for item in begun]


def grpc_infer(target: str, model: str, texts: Sequence[str], *, shape: Sequence[int], **options: Any) -> Answer:
    with _grpc().InferenceServerClient(target) as client:
        tensor = _tensor(_grpc(), texts, shape)
        return _answer(lambda: client.infer(model, [tensor], **_outputs(_grpc(), options)))


def grpc_async_infer(target: str, model: str, requests: Sequence[Sequence[str]]) -> list[Answer]:
    answers: list[Queue[Any]] = [Queue() for _ in requests]
    with _grpc().InferenceServerClient(target) as client:
        for number, (texts, answer) in enumerate(zip(requests, answers, strict=True)):
            tensor = _tensor(_grpc(), texts, [len(texts)])
            client.async_infer(
                model, [tensor], lambda result, error, to=answer: to.put((result, error)), request_id=str(number)
            )
        return [_received(answer) for answer in answers]


def grpc_stream(target: str, model: str, requests: Sequence[Answer], answers: int) -> list[Answer]:
    """Sends requests over one stream and returns this number of responses in their order."""
    received: Queue[Any] = Queue()
    with _grpc().InferenceServerClient(target) as client:
        client.start_stream(lambda result, error: received.put((result, error)))
        for request in requests:
            options = dict(request)
            texts = options.pop("texts")
            client.async_stream_infer(model, [_tensor(_grpc(), texts, [len(texts)])], **options)
        return [_received(received) for _ in range(answers)]


def _http() -> Any:
    return import_module("tritonclient.http")


def _grpc() -> Any:
    return import_module("tritonclient.grpc")


def _tensor(library: Any, texts: Sequence[str], shape: Sequence[int], **options: Any) -> Any:
    tensor = library.InferInput("text_input", list(shape), "BYTES")
    tensor.set_data_from_numpy(np.array([text.encode() for text in texts], dtype=np.object_).reshape(shape), **options)
    return tensor


def _outputs(library: Any, options: Answer) -> Answer:
    names = options.pop("outputs", None)
    wanted = None if names is None else [library.InferRequestedOutput(name) for name in names]
    return {**options, "outputs": wanted}


def _received(queue: "Queue[Any]") -> Answer:
    result, error = queue.get(timeout=WAIT_SECONDS)

    def get() -> Any:
        if error is not None:
            raise error
        return result

    return _answer(get)


def _answer(get: Callable[[], Any]) -> Answer:
    """Returns the tensors of a result as lists, with its id; or the error."""
    try:
        result = get()
    except Exception as error:  # noqa: BLE001 - of any class: it is what the client raises
        return {"error": str(error)}
    response = result.get_response()
    if isinstance(response, dict):
        named, outputs = response.get("id"), [output["name"] for output in response["outputs"]]
        parameters = response["parameters"]
    else:
        named, outputs = response.id, [output.name for output in response.outputs]
        parameters = {name: value.bool_param for name, value in response.parameters.items() if "final" in name}
    tensors = {name: result.as_numpy(name) for name in outputs}
    return {
        "id": named,
        "parameters": parameters,
        **{name: [list(array.shape), array.reshape(-1).tolist()] for name, array in tensors.items()},
    }
