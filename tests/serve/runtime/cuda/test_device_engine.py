"""The engine on the device runtime, on the CPU provider, returns bit for bit what it returns on the CPU runtime.

All kinds of search run at once: some need no logits on the host, others fetch and store them.
"""

import numpy as np
import pytest

from dragoman.export.answer import Answer
from dragoman.export.graph_decoder import GraphDecoder
from dragoman.export.verify.sync_engine import SyncEngine
from dragoman.model.tokenizer.tokenizer import EOS_ID
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.runtime.cpu import Sessions
from dragoman.serve.runtime.cuda.device import Device
from dragoman.serve.runtime.cuda.runtime import DeviceSessions
from dragoman.serve.scheduler.sequence import SequenceSpec
from dragoman.serve.search.options import SearchOptions
from tests.support.live import run_service
from tests.support.toy import ToyBundles

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


def specs(sessions: Sessions, options: list[SearchOptions]) -> list[SequenceSpec]:
    random = np.random.default_rng(5)
    vocabulary = sessions.manifest.vocabulary_size
    return [
        SequenceSpec((*random.integers(4, vocabulary, int(random.integers(0, 39))).tolist(), EOS_ID), each)
        for each in options
    ]


def answers(sessions: Sessions | DeviceSessions, wanted: list[SequenceSpec], together: int) -> list[Answer]:
    return SyncEngine(sessions, SLOTS).translate(wanted, together, lambda _: None, np.random.default_rng(2))


@pytest.fixture(scope="module")
def host(states_bundle: Bundle) -> Sessions:
    return Sessions.load(states_bundle, threads=1)


@pytest.fixture(scope="module")
def device(states_bundle: Bundle) -> DeviceSessions:
    return DeviceSessions.load(states_bundle, Device("cpu"))


@pytest.mark.parametrize("search", SEARCHES)
def test_each_search_answers_what_the_cpu_answers(host: Sessions, device: DeviceSessions, search: str) -> None:
    wanted = specs(host, [SEARCHES[search]] * 4)
    expected = answers(host, wanted, 1)
    assert all(answer.target_ids for answer in expected)
    assert answers(device, wanted, 1) == expected


def test_all_searches_at_once_answer_what_the_cpu_answers(host: Sessions, device: DeviceSessions) -> None:
    wanted = specs(host, [*SEARCHES.values()] * 3)
    assert answers(device, wanted, TOGETHER) == answers(host, wanted, TOGETHER)


def test_a_service_on_a_device_becomes_ready_and_answers(toy_bundles: ToyBundles) -> None:
    """Uses the engine's own thread, and golden sentences that must come out exactly."""
    toy_bundle = toy_bundles("portable", "fp32")
    bundle = Bundle.open(toy_bundle)
    texts = [golden.source for golden in bundle.golden]
    models = [DeviceSessions.load(bundle, Device("cpu")).runtime(4) for _ in range(2)]
    with run_service(toy_bundle, models, slots=4) as live:
        answer = live.post({"text": texts})
    assert answer.status_code == 200
    assert [each["text"] for each in answer.json()["translations"]] == [golden.target for golden in bundle.golden]


def test_the_graph_decoder_translates_as_on_the_cpu(host: Sessions, device: DeviceSessions) -> None:
    sources = [spec.source_ids for spec in specs(host, [SEARCHES["greedy"]] * 7)]
    expected = GraphDecoder(host).translate(sources)
    assert GraphDecoder(device).translate(sources) == expected
