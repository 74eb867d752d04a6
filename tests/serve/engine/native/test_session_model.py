"""Native engines on native graphs: the bits of the engine in Python, in every kind of search, for both precisions."""

import shutil
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from dragoman.model.network.transformer import Transformer
from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.serve.bundle.bundle import WEIGHTS_FILE, Bundle, BundleError
from dragoman.serve.bundle.manifest import AttentionHead, Precision
from dragoman.serve.bundle.shortlist import Shortlist
from dragoman.serve.engine.engine import Engine
from dragoman.serve.engine.engines import NativeEngine
from dragoman.serve.engine.native.model import loop_config, open_model
from dragoman.serve.engine.native.scheduler import NativeScheduler
from dragoman.serve.native.loop import loop_library
from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.runtime.onnx_runtime import why_no_kernels
from dragoman.serve.runtime.sessions import load_sessions
from dragoman.serve.scheduler.scheduler import Scheduler
from dragoman.serve.scheduler.sequence import DecodingSequence, SequenceGroup
from dragoman.serve.search.options import SearchOptions
from dragoman.serve.settings import ServeSettings
from tests.support.live import eventually
from tests.support.searches import GRID, bits
from tests.support.toy import random_model

pytestmark = pytest.mark.skipif(bool(why_no_kernels()), reason=why_no_kernels())
SLOTS = 12
LIMIT = 20
Specs = Sequence[tuple[tuple[int, ...], SearchOptions]]
Results = list[tuple[type, list[tuple[object, ...]]]]


each_model = pytest.fixture(scope="module", params=product(("fp32", "int8"), ("self_attention", "ssru")), ids="-".join)


def two_layers(
    kind: tuple[Precision, Any], vocabulary_size: int, export: Callable[..., Bundle]
) -> tuple[Bundle, Transformer]:
    """Returns a random model with two layers and two alignment heads, of a precision and a memory of the decoder."""
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "max_source_tokens": 30, "max_target_tokens": 40}
    precision, memory = kind
    model = random_model(3, vocabulary_size, decoder_memory=memory, **sizes)
    heads = AttentionHead(layer=0, head=1), AttentionHead(layer=1, head=0)
    return export(f"two_layers_{precision}_{memory}", model, precision=precision, alignment_heads=heads), model


@each_model
def bundle(request: pytest.FixtureRequest, tokenizer: Tokenizer, untrained: Callable[..., Bundle]) -> Bundle:
    return two_layers(request.param, tokenizer.vocabulary_size, untrained)[0]


def settings_of(bundle: Bundle, **changes: Any) -> ServeSettings:
    chosen = {"engines": 1, "slots": SLOTS, "alignments": True, "device": "cpu", "threads_per_engine": 1, **changes}
    return ServeSettings(bundle=bundle.folder, **chosen)


def results_of(sequences: Sequence[DecodingSequence]) -> Results:
    return [(type(sequence.error), list(map(bits, sequence.hypotheses))) for sequence in sequences]


def in_python(bundle: Bundle, specs: Specs, shortlist: Shortlist | None = None) -> Results:
    metrics = Metrics(CollectorRegistry(), "python")
    scheduler = Scheduler(SLOTS, 1000, 200, metrics)
    runtime = load_sessions(bundle, 1, aligned=True).runtime(SLOTS)
    engine = Engine(runtime, scheduler, metrics, bundle.manifest, shortlist=shortlist)
    sequences = [DecodingSequence(*spec, SequenceGroup(lambda _: None)) for spec in specs]
    scheduler.submit(sequences)
    while not scheduler.idle:
        engine.step()
    return results_of(sequences)


def natively(bundle: Bundle, specs: Specs, pause: Callable[[], object] = lambda: None, **changes: Any) -> Results:
    """Returns the results of native engines; `pause` is called between submissions."""
    settings = settings_of(bundle, **changes)
    metrics = Metrics(CollectorRegistry(), "native")
    scheduler = NativeScheduler(loop_library(), loop_config(settings, bundle), 1 << 14, metrics)
    model = open_model(bundle, settings.engine_threads)
    engines = NativeEngine.start_all(scheduler, model, settings, metrics)
    model.close()
    sequences = [DecodingSequence(*spec, SequenceGroup(lambda _: None)) for spec in specs]
    for sequence in sequences:
        scheduler.submit([sequence])
        pause()
    eventually(lambda: [scheduler.deliver(), scheduler.idle][1])
    for engine in engines:
        engine.stop()
    scheduler.close()
    return results_of(sequences)


def any_specs(bundle: Bundle, count: int, seed: int) -> Specs:
    """Returns sources of any length, some of them equal, with all kinds of options."""
    random, kinds = np.random.default_rng(seed), list(GRID.values())
    vocabulary = bundle.manifest.vocabulary_size
    specs = []
    for number in range(count):
        if number % 3 != 1:  # every third one has the source before it
            source = random.integers(4, vocabulary, random.integers(0, bundle.manifest.max_source_tokens))
        limit = int(random.integers(6, bundle.manifest.max_target_tokens + 1))
        options = SearchOptions(max_target_tokens=limit, **kinds[number % len(kinds)])
        specs.append(((*source.tolist(), bundle.manifest.eos_id), options))
    return specs


def test_every_search_returns_the_bits_of_the_engine_in_python(bundle: Bundle) -> None:
    specs = any_specs(bundle, 6 * len(GRID), seed=1)
    assert natively(bundle, specs) == in_python(bundle, specs)


@pytest.mark.promise("R1")
def test_arrivals_and_engines_change_no_bit(bundle: Bundle, *, thorough: bool) -> None:
    for seed in range(5 if thorough else 1):
        specs = any_specs(bundle, 40, seed)
        random = np.random.default_rng(seed)

        def pause(random: np.random.Generator = random) -> None:
            for _ in range(random.integers(0, 2000)):
                pass

        alone = [in_python(bundle, [spec])[0] for spec in specs]
        assert natively(bundle, specs, pause, engines=2) == alone


def test_threads_change_no_bit(bundle: Bundle) -> None:
    specs = any_specs(bundle, 30, seed=9)
    assert natively(bundle, specs, threads_per_engine=2) == natively(bundle, specs)


def test_a_node_next_to_the_operator_takes_part(bundle: Bundle, tmp_path: Path) -> None:
    shutil.copytree(bundle.folder, tmp_path, dirs_exist_ok=True)
    graph = onnx.load(bundle.folder / "decoder.onnx", load_external_data=False)
    (step,) = graph.graph.node
    step.output[list(step.output).index("best_scores")] = "scores"
    graph.graph.node.append(onnx.helper.make_node("Add", ["scores", "scores"], ["best_scores"]))
    onnx.save(graph, tmp_path / "decoder.onnx")
    doubled, specs = Bundle(tmp_path, bundle.manifest, bundle.golden), any_specs(bundle, 1, seed=3)
    assert natively(doubled, specs) != natively(bundle, specs)


def test_a_graph_that_onnx_runtime_rejects_is_an_error_that_names_the_bundle(bundle: Bundle, tmp_path: Path) -> None:
    shutil.copytree(bundle.folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "decoder.onnx").write_bytes(b"no graph")
    broken = Bundle(tmp_path, bundle.manifest, bundle.golden)
    with pytest.raises(BundleError, match=str(tmp_path)):
        open_model(broken, 1)
    (tmp_path / WEIGHTS_FILE).unlink()
    with pytest.raises(BundleError, match=WEIGHTS_FILE):
        open_model(broken, 1)


def test_a_failing_run_ends_its_sequences_only(bundle: Bundle) -> None:
    """A token outside of the vocabulary fails the encoder's run."""
    options = SearchOptions(max_target_tokens=LIMIT)
    good = (5, 6, bundle.manifest.eos_id), options
    with capture_logs() as logs:
        bad, *rest = natively(bundle, [((10**6,), options), good], prefill_token_budget=1)
    assert [bad[0].__name__, len(bad[1])] == ["InternalError", 0]
    assert rest == in_python(bundle, [good])
    assert [entry["event"] for entry in logs] == ["encode_failed"]
