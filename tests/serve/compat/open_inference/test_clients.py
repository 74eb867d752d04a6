"""Triton's own clients, unmodified: all their requests to a server over real connections."""

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from dragoman.serve.compat.open_inference.protocol import EXTENSIONS, OUTPUTS
from tests.support import triton_calls
from tests.support.cases import cases
from tests.support.fake_bundles import LONG_TEXT
from tests.support.live import WAIT_SECONDS, LiveService

CASES = cases(__file__)

TEXTS = ["alpha beta.", LONG_TEXT, "one two three."]
Call = Callable[..., Any]
INFER: list[Call] = [triton_calls.http_infer, triton_calls.grpc_infer]


@pytest.fixture(scope="module")
def far() -> Iterator[Call]:
    """Runs a function in the client process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield lambda call, *arguments, **options: pool.submit(call, *arguments, **options).result(3 * WAIT_SECONDS)


def address(live: LiveService, call: Call) -> str:
    return live.http_url.removeprefix("http://") if "http" in call.__name__ else live.grpc_target


def translations(live: LiveService, texts: list[str], **fields: Any) -> list[dict[str, Any]]:
    return list(live.post({"text": texts, **fields}).json()["translations"])


def texts_of(answer: dict[str, Any]) -> list[str]:
    return [text.decode() for text in answer["text_output"][1]]


@pytest.mark.parametrize("call", [triton_calls.http_facts, triton_calls.grpc_facts])
def test_server_and_model_metadata_are_returned(live: LiveService, far: Call, call: Call) -> None:
    facts = far(call, address(live, call), "fake")
    assert facts["live"] is facts["ready"] is facts["model_ready"] is True
    assert facts.get("other_ready", False) is False
    assert (facts["server"]["name"], tuple(facts["server"]["extensions"])) == ("dragoman", EXTENSIONS)
    model = facts["model"]
    assert (model["name"], model["platform"]) == ("fake", "onnx_onnxv1")
    assert [tensor["name"] for tensor in model["inputs"]] == ["text_input"]
    assert [output["name"] for output in model["outputs"]] == list(OUTPUTS)
    config = facts["config"].get("config", facts["config"])
    assert [item["name"] for item in config["output"]] == list(OUTPUTS)
    (indexed,) = facts["index"]["models"] if isinstance(facts["index"], dict) else facts["index"]
    assert (indexed["name"], indexed["state"]) == ("fake", "READY")
    assert model["versions"] == [indexed["version"]]


@pytest.mark.parametrize("call", INFER)
@pytest.mark.parametrize("shape", [[3], [3, 1]])
def test_texts_are_translated_in_the_shape_that_they_came_in(
    live: LiveService, far: Call, call: Call, shape: list[int]
) -> None:
    answer = far(call, address(live, call), "fake", TEXTS, shape=shape, request_id="a-7")
    expected = translations(live, TEXTS)
    assert answer["id"] == "a-7"
    assert texts_of(answer) == [item["text"] for item in expected]
    for name in ("score", "normalized_score", "source_tokens", "target_tokens"):
        assert answer[name] == [shape, [item[name] for item in expected]]
    assert [reason.decode() for reason in answer["finish_reason"][1]] == [item["finish_reason"] for item in expected]


def test_tensors_may_be_json(live: LiveService, far: Call) -> None:
    call = triton_calls.http_infer
    where = address(live, call)
    as_bytes, as_json = (far(call, where, "fake", TEXTS, shape=[3], binary=binary) for binary in (True, False))
    del as_bytes["parameters"], as_json["parameters"]
    assert as_json == as_bytes


@pytest.mark.parametrize("call", INFER)
def test_a_client_chooses_among_the_outputs(live: LiveService, far: Call, call: Call) -> None:
    answer = far(call, address(live, call), "fake", TEXTS, shape=[3], outputs=["score"])
    assert set(answer) == {"id", "parameters", "score"}


@pytest.mark.parametrize("call", INFER)
def test_options_are_parameters(live: LiveService, far: Call, call: Call) -> None:
    options = {"beam_size": 3, "length_penalty": "0.5", "max_target_tokens": 4, "split_sentences": False}
    answer = far(call, address(live, call), "fake", TEXTS, shape=[3], parameters={**options, "source_language": "en"})
    numbers = {"beam_size": 3, "length_penalty": 0.5, "max_target_tokens": 4}
    expected = translations(live, TEXTS, options=numbers, split_sentences=False, source_language="en")
    assert texts_of(answer) == [item["text"] for item in expected]


@pytest.mark.parametrize("call", INFER)
@pytest.mark.parametrize(("wrong", "problem"), CASES["errors are those of the protocol"])
def test_errors_are_those_of_the_protocol(
    live: LiveService, far: Call, call: Call, wrong: dict[str, Any], problem: str
) -> None:
    options = dict(wrong)
    texts = options.pop("texts", ["alpha beta."])
    answer = far(call, address(live, call), options.pop("model", "fake"), texts, shape=[len(texts)], **options)
    assert problem in answer["error"]
    lost = problem.startswith(("model", "version"))
    over_http, over_grpc = ("404", "StatusCode.NOT_FOUND") if lost else ("400", "StatusCode.INVALID_ARGUMENT")
    assert answer["error"].startswith(f"[{over_http if call is triton_calls.http_infer else over_grpc}] ")


@pytest.mark.parametrize("call", [triton_calls.http_async_infer, triton_calls.grpc_async_infer])
def test_concurrent_requests_get_their_own_responses(live: LiveService, far: Call, call: Call) -> None:
    answers = far(call, address(live, call), "fake", [[text] for text in TEXTS * 3])
    assert [answer["id"] for answer in answers] == [str(number) for number in range(9)]
    expected = [translation["text"] for translation in translations(live, TEXTS)]
    assert [texts_of(answer)[0] for answer in answers] == expected * 3


def test_a_stream_survives_failed_requests(live: LiveService, far: Call) -> None:
    requests = [
        {"texts": ["alpha beta."], "request_id": "a"},
        {"texts": [" "], "request_id": "b"},
        {"texts": [LONG_TEXT, "one two three."], "request_id": "c"},
    ]
    call = triton_calls.grpc_stream
    answers = far(call, address(live, call), "fake", requests, 3)
    (failed,) = [answer["error"] for answer in answers if "error" in answer]
    assert "text_input[0]: " in failed
    good = {answer["id"]: texts_of(answer) for answer in answers if "error" not in answer}
    expected = [translation["text"] for translation in translations(live, TEXTS)]
    assert good == {"a": expected[:1], "c": expected[1:]}
    assert all(answer["parameters"] == {"triton_final_response": True} for answer in answers if "error" not in answer)


def test_a_stream_returns_new_text_in_parts(live: LiveService, far: Call) -> None:
    call = triton_calls.grpc_stream
    request = {"texts": [LONG_TEXT], "parameters": {"stream": True}}
    first, *_ = answers = far(call, address(live, call), "fake", [request], 2)
    assert first["parameters"] == {"triton_final_response": False}
    (expected,) = translations(live, [LONG_TEXT])
    assert expected["text"].startswith(texts_of(first)[0])
    assert texts_of(first)[0]
    assert len(answers) == 2
