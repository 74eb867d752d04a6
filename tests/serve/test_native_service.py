"""A whole service with native engines, over real connections: answers, streams, cancellation, reloads and its end."""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import grpc
import pytest

from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.protos.translation_pb2 import TranslateRequest
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.manifest import AttentionHead
from dragoman.serve.engine.engines import NativeEngine
from dragoman.serve.registry.engine_models import load_models
from dragoman.serve.runtime.onnx_runtime import why_no_kernels
from tests.support.cases import cases
from tests.support.live import LiveService, eventually, keep_busy, run_service
from tests.support.toy import random_model

CASES = cases(__file__)

pytestmark = pytest.mark.skipif(bool(why_no_kernels()), reason=why_no_kernels())
TEXTS = ["alpha beta.", "gamma house.", "one two three.", "river garden.", "delta."]
KINDS: dict[str, dict[str, Any]] = CASES["kinds of search"]
LIMITS: dict[str, Any] = {"engines": 2, "slots": 8, "queue_limit": 200, "alignments": True, "device": "cpu"}


@pytest.fixture(scope="module")
def bundle(tokenizer: Tokenizer, untrained: Callable[..., Bundle]) -> Path:
    """A random model whose translations take some steps."""
    model = random_model(3, tokenizer.vocabulary_size, max_source_tokens=60, max_target_tokens=60)
    return untrained("some_steps", model, alignment_heads=(AttentionHead(layer=0, head=0),)).folder


@pytest.fixture(scope="module")
def native(bundle: Path) -> Iterator[LiveService]:
    with run_service(bundle, [], **LIMITS) as live:
        assert all(isinstance(engine, NativeEngine) for engine in live.pipeline.engines.running)
        yield live


@pytest.fixture(scope="module")
def reference(bundle: Path) -> Iterator[LiveService]:
    """The same with engines in Python."""
    with run_service(bundle, [], load=load_models, **LIMITS) as live:
        yield live


def answer(live: LiveService, **request: Any) -> Any:
    answered = live.post({"text": TEXTS, "options": request})
    assert answered.status_code == 200, answered.text
    return answered.json()["translations"]


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_answers_equal_those_in_python(native: LiveService, reference: LiveService, options: dict[str, Any]) -> None:
    assert answer(native, **options) == answer(reference, **options)


def test_many_clients_at_once_get_the_answers_of_one(native: LiveService) -> None:
    alone = {kind: answer(native, **options) for kind, options in KINDS.items()}
    with ThreadPoolExecutor(12) as pool:
        kinds = list(KINDS) * 10
        assert list(pool.map(lambda kind: answer(native, **KINDS[kind]), kinds)) == [alone[kind] for kind in kinds]
    native.settle()


def test_a_stream_joins_to_the_answer(native: LiveService) -> None:
    texts = dict.fromkeys(range(len(TEXTS)), "")
    with native.call_stream(TranslateRequest(text=TEXTS)) as events:
        for event in events:
            if event.HasField("delta"):
                texts[event.delta.text_index] += event.delta.text
    assert list(texts.values()) == [item["text"] for item in answer(native)]


def test_scores_are_those_of_engines_in_python(native: LiveService, reference: LiveService) -> None:
    scores = []
    for live in (native, reference):
        answered = live.post({"pairs": [{"text": text, "translation": text} for text in TEXTS]}, path="/v1/score")
        assert answered.status_code == 200, answered.text
        scores.append(answered.json()["scores"])
    assert scores[0] == scores[1]


def test_a_deadline_and_a_disconnect_free_their_rows(native: LiveService, monkeypatch: pytest.MonkeyPatch) -> None:
    # A busy server would reject a call with so little time.
    keep_busy(monkeypatch, busy=False)
    eventually(lambda: not native.service.core.load_shedder.busy)
    for _ in range(20):
        with native.call_stream(TranslateRequest(text=TEXTS * 4)) as events:
            next(events)
            events.cancel()
    # A stream that ended before its cancellation left its texts in the cache: these are other texts.
    late_texts = [f"{text} {number}" for number in range(12) for text in TEXTS]
    with pytest.raises(grpc.RpcError) as late:
        native.call(TranslateRequest(text=late_texts), 0.001)
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    native.settle()
    eventually(lambda: native.pipeline.scheduler.idle)
    eventually(lambda: native.metric("rows_running") == native.metric("sequences_waiting") == 0)


def test_the_engines_are_counted(native: LiveService) -> None:
    answer(native)
    native.get("/metrics")
    for phase in ("encode", "decode"):
        assert native.metric("engine_steps_total", phase=phase) > 0
        assert native.metric("engine_step_seconds_sum", phase=phase) > 0


def test_a_reload_replaces_the_loop_while_requests_run(bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "served"
    shutil.copytree(bundle, folder)
    with run_service(folder, [], admin_key="key", **LIMITS) as live:
        expected, first = answer(live), live.pipeline
        manifest = (folder / "manifest.json").read_text(encoding="utf-8")
        with ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(answer, live) for _ in range(40)]
            (folder / "manifest.json").write_text(manifest + "\n", encoding="utf-8")
            live.loop.call_soon_threadsafe(live.service.reloader.start)
            eventually(lambda: live.pipeline is not first)
            answers += [pool.submit(answer, live) for _ in range(20)]
            assert all(item.result() == expected for item in answers)
    assert first.scheduler.idle


def test_stopping_a_busy_service_answers_every_request(bundle: Path) -> None:
    with run_service(bundle, [], **LIMITS) as live, ThreadPoolExecutor(8) as pool:
        expected = answer(live)
        answers = [pool.submit(answer, live) for _ in range(30)]
        wait(answers, return_when=FIRST_COMPLETED)
        live.stop()
        done = [item.exception() is None and item.result() == expected for item in answers]
    assert any(done)
    assert Bundle.open(bundle).manifest.cache is not None
