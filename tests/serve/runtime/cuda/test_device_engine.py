"""The engine on the device runtime, on the CPU provider, finds what it finds with native graphs of the same model.

Scores may differ by `TOLERANCE`, as sums are rounded in another order. All kinds of search run at once: some need no
logits on the host, others fetch and store them.
"""

from pathlib import Path
from shutil import copytree

import numpy as np
import pytest

from dragoman.export.answer import Answer
from dragoman.export.graph_decoder import GraphDecoder
from dragoman.export.verify.sync_engine import SyncEngine
from dragoman.model.tokenizer.tokenizer import EOS_ID
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.runtime.cuda.device import Device
from dragoman.serve.runtime.cuda.runtime import DeviceSessions
from dragoman.serve.runtime.native import NativeSessions
from dragoman.serve.scheduler.sequence import SequenceSpec
from dragoman.serve.search.options import SearchOptions
from tests.support.bundles import change_manifest
from tests.support.live import run_service

LIMIT = 12
SEARCHES = {
    "greedy": SearchOptions(max_target_tokens=LIMIT),
    "beam": SearchOptions(max_target_tokens=LIMIT, beam_size=4),
    "wide beam": SearchOptions(max_target_tokens=LIMIT, beam_size=6, length_penalty=0.6),
    "sampled": SearchOptions(max_target_tokens=LIMIT, temperature=1.0, seed=3),
    "sampled from few": SearchOptions(max_target_tokens=LIMIT, temperature=0.7, top_k=5, seed=4),
    "forced": SearchOptions(max_target_tokens=LIMIT, target_prefix=(7, 9)),
    "forced beam": SearchOptions(max_target_tokens=LIMIT, target_prefix=(7, 9), beam_size=3),
    "at least": SearchOptions(max_target_tokens=LIMIT, min_target_tokens=6),
    "suppressed": SearchOptions(max_target_tokens=LIMIT, suppressed_ids=(4, 5, 6, 7), beam_size=2),
    "not repeated": SearchOptions(max_target_tokens=LIMIT, no_repeat_ngram_tokens=1, repetition_penalty=1.5),
}
# Room for five of the widest sequences.
TOGETHER = 5
SLOTS = TOGETHER * 6
TOLERANCE = 1e-3


def specs(sessions: NativeSessions, options: list[SearchOptions]) -> list[SequenceSpec]:
    random = np.random.default_rng(5)
    vocabulary = sessions.manifest.vocabulary_size
    return [
        SequenceSpec((*random.integers(4, vocabulary, int(random.integers(0, 39))).tolist(), EOS_ID), option)
        for option in options
    ]


def answers(sessions: NativeSessions | DeviceSessions, wanted: list[SequenceSpec], together: int) -> list[Answer]:
    return SyncEngine(sessions, SLOTS).translate(wanted, together, lambda _: None, np.random.default_rng(2))


def assert_same(actual: list[Answer], expected: list[Answer]) -> None:
    assert [answer.target_ids for answer in actual] == [answer.target_ids for answer in expected]
    for own, other in zip(actual, expected, strict=True):
        assert own.score == pytest.approx(other.score, abs=TOLERANCE)
        assert own.token_scores == pytest.approx(other.token_scores, abs=TOLERANCE)


@pytest.fixture(scope="module")
def host(wide_bundle: Bundle) -> NativeSessions:
    return NativeSessions.load(wide_bundle, threads=1)


@pytest.fixture(scope="module")
def device(states_bundle: Bundle) -> DeviceSessions:
    return DeviceSessions.load(states_bundle, Device("cpu"))


@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_answers_what_native_graphs_answer(host: NativeSessions, device: DeviceSessions, search: str) -> None:
    wanted = specs(host, [SEARCHES[search]] * 4)
    expected = answers(host, wanted, 1)
    assert all(answer.target_ids for answer in expected)
    assert_same(answers(device, wanted, 1), expected)


def test_all_searches_at_once_answer_what_native_graphs_answer(host: NativeSessions, device: DeviceSessions) -> None:
    wanted = specs(host, [*SEARCHES.values()] * 3)
    assert_same(answers(device, wanted, TOGETHER), answers(host, wanted, TOGETHER))


def test_a_service_on_a_device_becomes_ready_and_answers(states_bundle: Bundle, tmp_path: Path) -> None:
    """Uses the engine's own thread, and golden sentences that must come out exactly."""
    golden = states_bundle.golden
    folder = copytree(states_bundle.folder, tmp_path / "for_cpus")  # a service for GPUs would look for one
    change_manifest(folder, lambda manifest: manifest.update(variant="cpu"))
    models = [DeviceSessions.load(states_bundle, Device("cpu")).runtime(4) for _ in range(2)]
    with run_service(folder, models, slots=4) as live:
        answer = live.post({"text": [sentence.source for sentence in golden]})
    assert answer.status_code == 200
    assert [item["text"] for item in answer.json()["translations"]] == [sentence.target for sentence in golden]


def test_the_graph_decoder_translates_as_with_native_graphs(host: NativeSessions, device: DeviceSessions) -> None:
    sources = [spec.source_ids for spec in specs(host, [SEARCHES["greedy"]] * 7)]
    assert_same(GraphDecoder(device).translate(sources), GraphDecoder(host).translate(sources))
