"""Native engines on the device model, on the CPU provider, find what they find with native graphs of the same model.

Scores may differ by `TOLERANCE`, as sums are rounded in another order. All kinds of search run at once: some need no
logits on the host, others change them.
"""

from pathlib import Path
from shutil import copy, copytree

import numpy as np
import pytest

from benchmarks.systems.native_engine import LiveNativeEngines, settings_of
from dragoman.export.graph_decoder import GraphDecoder
from dragoman.model.tokenizer.tokenizer import EOS_ID
from dragoman.serve.bundle.bundle import SHORTLIST_FILE, Bundle
from dragoman.serve.engine.native.model import open_model
from dragoman.serve.native.loop import LoopModel
from dragoman.serve.runtime.device import DeviceGraphs
from dragoman.serve.runtime.native import NativeSessions
from dragoman.serve.runtime.onnx_runtime import why_no_kernels
from dragoman.serve.scheduler.sequence import SequenceSpec
from dragoman.serve.search.hypothesis import Hypothesis
from dragoman.serve.search.options import SearchOptions
from tests.support.searches import GRID
from tests.support.shortlists import with_shortlist
from tests.support.toy import WIDE, random_model

pytestmark = pytest.mark.skipif(bool(why_no_kernels()), reason=why_no_kernels())
LIMIT = 12
SLOTS = 30
TOLERANCE = 1e-3
# Neither model returns alignments here.
SEARCHES = {
    name: SearchOptions(max_target_tokens=LIMIT, **options)
    for name, options in GRID.items()
    if not SearchOptions(max_target_tokens=LIMIT, **options).attended
}


def specs(bundle: Bundle, copies: int, *, shortlist: bool = False) -> list[SequenceSpec]:
    """Returns sources of any length, each with another search; every other one with a shortlist if wanted."""
    random = np.random.default_rng(5)
    vocabulary = bundle.manifest.vocabulary_size
    sources = [random.integers(4, vocabulary, int(random.integers(0, 39))).tolist() for _ in [*SEARCHES] * copies]
    return [
        SequenceSpec(
            (*sources[number - (number % 3 == 1)], EOS_ID),  # every third one has the source before it
            option._replace(shortlist=shortlist and number % 2 == 0),
        )
        for number, option in enumerate([*SEARCHES.values()] * copies)
    ]


def answers(bundle: Bundle, model: LoopModel, wanted: list[SequenceSpec], engines: int = 1) -> list[Hypothesis]:
    live = LiveNativeEngines(bundle, settings_of(bundle, engines=engines, slots=SLOTS), model)
    try:
        return [sequence.best for sequence in live.translate(wanted)]
    finally:
        live.close()


@pytest.mark.parametrize("engines", [1, 2])
def test_all_searches_at_once_find_what_they_find_with_native_graphs(
    wide_bundle: Bundle, states_bundle: Bundle, engines: int
) -> None:
    assert_same(wide_bundle, states_bundle, specs(wide_bundle, 3), engines)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("others", [0, 40])
def test_greedy_steps_that_start_before_the_last_one_is_read_find_the_same(
    wide_bundle: Bundle, states_bundle: Bundle, ahead: bool, others: int
) -> None:
    """Sequences of other searches, which come and go, interrupt the steps that run ahead."""
    mixed = specs(wide_bundle, 6)
    limits = [1, 2, LIMIT]
    greedy = [
        SequenceSpec(spec.source_ids, SearchOptions(max_target_tokens=limits[number % 3]))
        for number, spec in enumerate(mixed)
    ]
    assert_same(wide_bundle, states_bundle, [*greedy[:50], *mixed[:others], *greedy[50:]], ahead=ahead)


def assert_same(
    host: Bundle, device: Bundle, wanted: list[SequenceSpec], engines: int = 1, *, ahead: bool = True
) -> None:
    expected = answers(host, open_model(host, 1), wanted)
    actual = answers(device, DeviceGraphs(device, 0, ahead=ahead).open(engines, SLOTS), wanted, engines)
    assert [own.target_ids for own in actual] == [other.target_ids for other in expected]
    for own, other in zip(actual, expected, strict=True):
        assert own.score == pytest.approx(other.score, abs=TOLERANCE)
        assert own.token_scores == pytest.approx(other.token_scores, abs=TOLERANCE)


def test_a_shortlist_restricts_the_tokens_as_with_native_graphs(
    wide_bundle: Bundle, states_bundle: Bundle, tmp_path: Path
) -> None:
    model = random_model(1, wide_bundle.manifest.vocabulary_size, **WIDE)
    host, _ = with_shortlist(wide_bundle, model, tmp_path)
    folder = copytree(states_bundle.folder, tmp_path / "states")
    copy(tmp_path / SHORTLIST_FILE, folder)
    manifest = states_bundle.manifest.model_copy(update={"shortlist": host.manifest.shortlist})
    device = Bundle(folder, manifest, states_bundle.golden)
    assert_same(host, device, specs(wide_bundle, 2, shortlist=True))


def test_golden_sentences_come_out_exactly(states_bundle: Bundle) -> None:
    options = SearchOptions(max_target_tokens=states_bundle.manifest.max_target_tokens)
    wanted = [SequenceSpec(sentence.source_ids, options) for sentence in states_bundle.golden]
    found = answers(states_bundle, DeviceGraphs(states_bundle, 0).open(1, SLOTS), wanted)
    assert [own.target_ids for own in found] == [sentence.target_ids for sentence in states_bundle.golden]


def test_the_graph_decoder_translates_as_with_native_graphs(wide_bundle: Bundle, states_bundle: Bundle) -> None:
    sources = [source_ids for source_ids, _ in specs(wide_bundle, 1)]
    host, device = NativeSessions.load(wide_bundle, threads=1), DeviceGraphs(states_bundle, 0)
    found, expected = (GraphDecoder(graphs).translate(sources) for graphs in (device, host))
    assert [own.target_ids for own in found] == [other.target_ids for other in expected]
