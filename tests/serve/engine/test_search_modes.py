"""Every kind of search in the engine returns what the slow reference returns, bitwise the same in any batch."""

from collections.abc import Sequence as Sequences
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from structlog.testing import capture_logs

from dragoman.serve.errors import InternalError
from dragoman.serve.scheduler.sequence import DecodingSequence, SequenceState
from dragoman.serve.search.hypothesis import FinishReason
from dragoman.serve.search.options import SearchOptions
from tests.support.benches import MakeBench, each_engine
from tests.support.engines import Bench
from tests.support.fake_reference import reference
from tests.support.fakes import BOS_ID, ENDLESS_ID, POISON_ID, next_attention
from tests.support.promises import Measured
from tests.support.search_reference import BrokenSearchError
from tests.support.searches import GRID, SOURCES, any_specs, bits

# Few enough that sequences wait in the tests of mixtures.
SLOTS = 8
LIMIT = 9


def run(
    make_bench: MakeBench, specs: Sequences[tuple[tuple[int, ...], SearchOptions]], gaps: Sequences[int] = ()
) -> list[DecodingSequence]:
    """Runs sequences together; each one joins after its number of steps."""
    bench = make_bench(slots=SLOTS)
    sequences = []
    for number, (source_ids, options) in enumerate(specs):
        bench.step(gaps[number] if gaps else 0)
        sequences.append(bench.submit(*source_ids, options=options))
    bench.run()
    assert len(bench.finished) == len(specs)
    assert all(sequence.state is SequenceState.FINISHED for sequence in sequences)
    assert bench.sample("sequences_running") == 0
    return sequences


def assert_found(sequence: DecodingSequence) -> None:
    """Compares with the reference; both fail if a row can neither continue nor end."""
    try:
        expected = reference(sequence.source_ids, sequence.options)
    except BrokenSearchError:
        assert isinstance(sequence.error, InternalError)
        assert not sequence.hypotheses
        return
    assert sequence.error is None
    assert len(sequence.hypotheses) == len(expected)
    for actual, found in zip(sequence.hypotheses, expected, strict=True):
        assert (actual.target_ids, actual.finish_reason) == (found.target_ids, found.finish_reason)
        assert actual.token_scores == pytest.approx(found.token_scores, rel=1e-4, abs=1e-5)
        assert actual.score == pytest.approx(found.score, rel=1e-4, abs=1e-5)
        assert actual.normalized_score == pytest.approx(found.normalized_score, rel=1e-4, abs=1e-5)


@each_engine
@pytest.mark.parametrize("limit", [2, LIMIT])
@pytest.mark.parametrize("options", GRID.values(), ids=GRID)
def test_search_finds_what_the_reference_finds(make_bench: MakeBench, options: dict[str, Any], limit: int) -> None:
    chosen = SearchOptions(max_target_tokens=limit, **options)
    if len(chosen.target_prefix) + chosen.forced_end > limit:
        return
    # The end token of an endless source has probability zero.
    for source_ids in SOURCES[:-1] if chosen.forced_end else SOURCES:
        (sequence,) = run(make_bench, [(source_ids, chosen)])
        assert_found(sequence)


@pytest.mark.promise("R1")
@each_engine
@settings(max_examples=20)
@given(specs=any_specs(LIMIT, max_size=7))
def test_any_mixture_of_searches_finds_what_each_finds_alone(
    make_bench: MakeBench, specs: list[tuple[tuple[int, ...], SearchOptions, int]]
) -> None:
    together = run(make_bench, [(source_ids, options) for source_ids, options, _ in specs], [gap for *_, gap in specs])
    for sequence in together:
        (alone,) = run(make_bench, [(sequence.source_ids, sequence.options)])
        assert list(map(bits, sequence.hypotheses)) == list(map(bits, alone.hypotheses))
        assert_found(sequence)


@each_engine
@pytest.mark.parametrize("kind", ["greedy", "beam of 2", "samples"])
def test_a_translation_without_another_token_ends_below_its_minimum_length(make_bench: MakeBench, kind: str) -> None:
    """Five of ten possible tokens never occur, the others once each: no translation can have six tokens."""
    rules: dict[str, Any] = {"min_target_tokens": 7, "no_repeat_ngram_tokens": 1, "suppressed_ids": (3, 4, 5, 6, 7)}
    chosen = SearchOptions(max_target_tokens=LIMIT, **rules, **GRID[kind])
    (sequence,) = run(make_bench, [((5, 8), chosen)])
    assert_found(sequence)
    for hypothesis in sequence.hypotheses:
        assert sorted(hypothesis.target_ids) == [8, 9, 10, 11, 12]
        assert hypothesis.finish_reason is FinishReason.EOS
        assert hypothesis.token_scores[-1] == 0.0, "no other token was left"


@pytest.mark.promise("R4")
@each_engine
@pytest.mark.parametrize("kind", ["greedy", "beam of 2", "samples"])
def test_a_row_without_probabilities_fails_only_its_own(make_bench: MakeBench, kind: str, measured: Measured) -> None:
    """The other sequences never reach an end token."""
    bench = make_bench(slots=SLOTS)
    options = SearchOptions(max_target_tokens=LIMIT, **GRID[kind])
    beam = SearchOptions(max_target_tokens=LIMIT, beam_size=2)
    before, poisoned, after = (
        bench.submit(*source_ids, ENDLESS_ID, options=chosen)
        for source_ids, chosen in (((4,), beam), ((POISON_ID,), options), ((6,), beam))
    )
    with capture_logs() as logs:
        bench.run()
    assert isinstance(poisoned.error, InternalError)
    assert not poisoned.hypotheses
    assert [entry["log_level"] for entry in logs] == ["error"]
    assert_found(before)
    assert_found(after)
    measured("R4", f"{kind}, no numbers: ends as INTERNAL, 0 of 2 neighbors changed; no end: ends at its limit")


@each_engine
@pytest.mark.parametrize("offset", range(LIMIT))
def test_a_cancelled_beam_leaves_with_all_of_its_rows(make_bench: MakeBench, offset: int) -> None:
    bench = make_bench(slots=SLOTS)
    beam = bench.submit(7, ENDLESS_ID, options=SearchOptions(max_target_tokens=LIMIT, beam_size=5))
    other = bench.submit(4, ENDLESS_ID, options=SearchOptions(max_target_tokens=LIMIT, beam_size=3))
    bench.step(offset + 1)
    bench.scheduler.cancel(beam)
    bench.step()
    assert beam.state is SequenceState.FINISHED
    bench.run()
    assert_found(other)


@each_engine
def test_alignments_have_a_row_for_each_token_and_a_column_for_each_source_token(make_bench: MakeBench) -> None:
    options = SearchOptions(max_target_tokens=LIMIT, beam_size=3, hypotheses=3, alignments=True)
    (sequence,) = run(make_bench, [((5, 8, 11), options)])
    for hypothesis in sequence.hypotheses:
        targets = [np.array((BOS_ID, *hypothesis.target_ids[:index])) for index in range(len(hypothesis.target_ids))]
        expected = np.array([next_attention(3, target) for target in targets]).reshape(-1, 3)
        assert hypothesis.alignments is not None
        np.testing.assert_array_equal(hypothesis.alignments, expected)


def test_only_steps_of_a_sequence_that_needs_alignments_compute_them() -> None:
    """A sequence that does not ask for them costs no more next to those that do before and after it."""
    bench = Bench(slots=SLOTS)
    bench.submit(ENDLESS_ID, options=SearchOptions(max_target_tokens=9))
    bench.step(3)
    bench.submit(4, ENDLESS_ID, options=SearchOptions(max_target_tokens=2, alignments=True))
    bench.run()
    assert bench.model.aligned == [False] * 3 + [True] * 2 + [False] * 4
