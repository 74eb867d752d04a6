"""Every kind of search in the engine returns what the slow reference returns, bitwise the same in any batch."""

from collections.abc import Sequence as Sequences
from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from serve.errors import InternalError
from serve.scheduler.sequence import DecodingSequence, SequenceState
from serve.search.hypothesis import FinishReason, Hypothesis
from serve.search.options import SearchOptions
from tests.support.engines import Bench
from tests.support.fake_reference import reference
from tests.support.fakes import BOS_ID, ENDLESS_ID, FIRST_ID, POISON_ID, VOCABULARY, next_attention
from tests.support.promises import Measured
from tests.support.search_reference import BrokenSearchError

# Few enough that sequences wait in the tests of mixtures.
SLOTS = 8
LIMIT = 9
SOURCES = [(3,), (4, 5), (9, 9, 9), (5, 8, 11, 2), (ENDLESS_ID,)]


def run(specs: Sequences[tuple[tuple[int, ...], SearchOptions]], gaps: Sequences[int] = ()) -> list[DecodingSequence]:
    """Runs sequences together; each one joins after its number of steps."""
    bench = Bench(slots=SLOTS, prefetched=2)
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
        assert sequence.hypotheses == []
        return
    assert sequence.error is None
    assert len(sequence.hypotheses) == len(expected)
    for actual, found in zip(sequence.hypotheses, expected, strict=True):
        assert (actual.target_ids, actual.finish_reason) == (found.target_ids, found.finish_reason)
        assert actual.token_scores == pytest.approx(found.token_scores, rel=1e-4, abs=1e-5)
        assert actual.score == pytest.approx(found.score, rel=1e-4, abs=1e-5)
        assert actual.normalized_score == pytest.approx(found.normalized_score, rel=1e-4, abs=1e-5)


def bits(hypothesis: Hypothesis) -> tuple[object, ...]:
    """Returns every field of a hypothesis, so that equal means bitwise equal."""
    *values, alignments = astuple(hypothesis)
    return (*values, None if alignments is None else alignments.tobytes())


GRID = {
    "greedy": {},
    "beam of 2": {"beam_size": 2},
    "beam of 5": {"beam_size": 5, "length_penalty": 0.6},
    "n-best": {"beam_size": 4, "hypotheses": 3},
    "impatient": {"beam_size": 4, "patience": 0.5},
    "patient": {"beam_size": 3, "patience": 2.0, "hypotheses": 3},
    "no length penalty": {"beam_size": 4, "length_penalty": 0.0},
    "covering": {"beam_size": 4, "coverage_penalty": 0.8, "hypotheses": 4},
    "aligned": {"alignments": True},
    "sampled": {"temperature": 1.0, "seed": 7},
    "samples": {"temperature": 1.7, "seed": 8, "hypotheses": 4},
    "top-k": {"temperature": 2.0, "top_k": 3, "seed": 9, "hypotheses": 2},
    "top-p": {"temperature": 3.0, "top_p": 0.7, "seed": 1, "hypotheses": 2},
    "long": {"min_target_tokens": 7},
    "long beam": {"min_target_tokens": 7, "beam_size": 3},
    "unrepetitive": {"repetition_penalty": 1.6},
    "unrepetitive beam": {"repetition_penalty": 1.6, "beam_size": 3},
    "no token twice": {"no_repeat_ngram_tokens": 1},
    "no pair twice": {"no_repeat_ngram_tokens": 2, "beam_size": 2},
    "suppressed": {"suppressed_ids": (3, 4, 5, 6)},
    "suppressed beam": {"suppressed_ids": (3, 4, 5, 6), "beam_size": 3},
    "prefixed": {"target_prefix": (5, 6, 5)},
    "prefixed beam": {"target_prefix": (5, 6, 5), "beam_size": 3, "hypotheses": 2},
    "prefixed samples": {"target_prefix": (5, 6), "temperature": 1.0, "hypotheses": 3},
    "given": {"target_prefix": (5, 6, 5, 9), "forced_end": True},
    "given and empty": {"forced_end": True},
}


@pytest.mark.parametrize("limit", [1, 2, 5, LIMIT])
@pytest.mark.parametrize("options", GRID.values(), ids=GRID)
def test_search_finds_what_the_reference_finds(options: dict[str, object], limit: int) -> None:
    chosen = SearchOptions(max_target_tokens=limit, **options)  # type: ignore[arg-type]
    if len(chosen.target_prefix) + chosen.forced_end > limit:
        return
    # The end token of an endless source has probability zero.
    for source_ids in SOURCES[:-1] if chosen.forced_end else SOURCES:
        (sequence,) = run([(source_ids, chosen)])
        assert_found(sequence)


tokens = st.integers(FIRST_ID, VOCABULARY - 1)
source_texts = st.lists(st.integers(FIRST_ID, 50) | st.just(ENDLESS_ID), min_size=1, max_size=5).map(tuple)


@st.composite
def any_options(draw: st.DrawFn) -> SearchOptions:
    """Draws any options that the interfaces accept."""
    limit = draw(st.integers(1, LIMIT))
    sampled = draw(st.booleans())
    beam_size = 1 if sampled else draw(st.integers(1, 4))
    prefix = tuple(draw(st.lists(tokens, max_size=min(3, limit))))
    return SearchOptions(
        max_target_tokens=limit,
        min_target_tokens=draw(st.integers(0, limit)),
        beam_size=beam_size,
        patience=draw(st.sampled_from([0.5, 1.0, 2.0])),
        hypotheses=draw(st.integers(1, 4 if sampled else beam_size)),
        length_penalty=draw(st.sampled_from([0.0, 0.6, 1.0])),
        coverage_penalty=draw(st.sampled_from([0.0, 0.0, 0.3])),
        temperature=draw(st.sampled_from([0.3, 1.0, 2.0])) if sampled else 0.0,
        top_k=draw(st.integers(0, 5)),
        top_p=draw(st.sampled_from([1.0, 0.9, 0.4])),
        seed=draw(st.integers(0, 2**64 - 1)),
        repetition_penalty=draw(st.sampled_from([1.0, 1.0, 1.5])),
        no_repeat_ngram_tokens=draw(st.integers(0, 3)),
        suppressed_ids=tuple(draw(st.lists(tokens, max_size=3, unique=True))),
        target_prefix=prefix,
        forced_end=beam_size == 1 and len(prefix) < limit and draw(st.booleans()),
        alignments=draw(st.booleans()),
    )


spec = st.tuples(source_texts, any_options(), st.integers(0, 4)).filter(
    lambda spec: not (spec[1].forced_end and ENDLESS_ID in spec[0])
)


@pytest.mark.promise("R1")
@settings(max_examples=30)
@given(specs=st.lists(spec, min_size=1, max_size=7))
def test_any_mixture_of_searches_finds_what_each_finds_alone(
    specs: list[tuple[tuple[int, ...], SearchOptions, int]],
) -> None:
    together = run([(source_ids, options) for source_ids, options, _ in specs], [gap for *_, gap in specs])
    for sequence in together:
        (alone,) = run([(sequence.source_ids, sequence.options)])
        assert list(map(bits, sequence.hypotheses)) == list(map(bits, alone.hypotheses))
        assert_found(sequence)


@pytest.mark.parametrize("kind", ["greedy", "beam of 2", "samples"])
def test_a_translation_without_another_token_ends_below_its_minimum_length(kind: str) -> None:
    """Five of ten possible tokens never occur, the others once each: no translation can have six tokens."""
    chosen = SearchOptions(
        max_target_tokens=LIMIT,
        min_target_tokens=7,
        no_repeat_ngram_tokens=1,
        suppressed_ids=(3, 4, 5, 6, 7),
        **GRID[kind],  # type: ignore[arg-type]
    )
    (sequence,) = run([((5, 8), chosen)])
    assert_found(sequence)
    for hypothesis in sequence.hypotheses:
        assert sorted(hypothesis.target_ids) == [8, 9, 10, 11, 12]
        assert hypothesis.finish_reason is FinishReason.EOS
        assert hypothesis.token_scores[-1] == 0.0, "no other token was left"


@pytest.mark.promise("R4")
@pytest.mark.parametrize("kind", ["greedy", "beam of 2", "samples"])
def test_a_row_without_probabilities_fails_its_own_sequence_only(kind: str, measured: Measured) -> None:
    """The other sequences never reach an end token."""
    bench = Bench(slots=SLOTS)
    options = SearchOptions(max_target_tokens=LIMIT, **GRID[kind])  # type: ignore[arg-type]
    beam = SearchOptions(max_target_tokens=LIMIT, beam_size=2)
    before, poisoned, after = (
        bench.submit(*source_ids, ENDLESS_ID, options=chosen)
        for source_ids, chosen in (((4,), beam), ((POISON_ID,), options), ((6,), beam))
    )
    with capture_logs() as logs:
        bench.run()
    assert isinstance(poisoned.error, InternalError)
    assert poisoned.hypotheses == []
    assert [entry["log_level"] for entry in logs] == ["error"]
    assert_found(before)
    assert_found(after)
    measured("R4", f"{kind}, no numbers: ends as INTERNAL, 0 of 2 neighbors changed; no end: ends at its limit")


@pytest.mark.parametrize("offset", range(LIMIT))
def test_a_cancelled_beam_leaves_with_all_of_its_rows(offset: int) -> None:
    bench = Bench(slots=SLOTS)
    beam = bench.submit(7, ENDLESS_ID, options=SearchOptions(max_target_tokens=LIMIT, beam_size=5))
    other = bench.submit(4, ENDLESS_ID, options=SearchOptions(max_target_tokens=LIMIT, beam_size=3))
    bench.step(offset + 1)
    bench.scheduler.cancel(beam)
    bench.step()
    assert beam.state is SequenceState.FINISHED
    bench.run()
    assert_found(other)


def test_alignments_have_a_row_for_each_token_and_a_column_for_each_source_token() -> None:
    options = SearchOptions(max_target_tokens=LIMIT, beam_size=3, hypotheses=3, alignments=True)
    (sequence,) = run([((5, 8, 11), options)])
    for hypothesis in sequence.hypotheses:
        targets = [np.array((BOS_ID, *hypothesis.target_ids[:index])) for index in range(len(hypothesis.target_ids))]
        expected = np.array([next_attention(3, target) for target in targets]).reshape(-1, 3)
        assert hypothesis.alignments is not None
        np.testing.assert_array_equal(hypothesis.alignments, expected)
