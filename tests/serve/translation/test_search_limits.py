"""Limits of model and slots for a search, and the length limits of one text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.errors import InvalidRequestError
from serve.search.options import MAX_SUPPRESSED_IDS, SearchOptions
from serve.translation.fields import SearchFields
from serve.translation.request import SEED_BITS, SearchLimits, SearchPlan, TargetVocabulary

LIMIT = 20
PIECES = ("<unk>", "</s>", *(f"piece{number}" for number in range(2 * MAX_SUPPRESSED_IDS)))
LIMITS = SearchLimits(
    max_target_tokens=LIMIT,
    max_rows=4,
    aligned=True,
    vocabulary=TargetVocabulary.of(PIECES, unk_id=0, eos_id=1),
)


def lengths(
    fields: SearchFields, source_tokens: int, target_prefix: tuple[int, ...] = (), limits: SearchLimits = LIMITS
) -> tuple[int, int]:
    """Returns the shortest and the longest translation of one text."""
    options = limits.plan(fields).options_for(source_tokens, target_prefix, "target_prefix[0]")
    return options.min_target_tokens, options.max_target_tokens


def test_every_option_reaches_search() -> None:
    fields = SearchFields(
        beam_size=4,
        patience=2.0,
        hypotheses=3,
        length_penalty=0.5,
        coverage_penalty=0.25,
        max_target_tokens=9,
        min_target_tokens=2,
        max_target_ratio=1.5,
        min_target_ratio=0.5,
        repetition_penalty=1.25,
        no_repeat_ngram_tokens=3,
        suppressed_tokens=("piece0", "piece2"),
        suppress_unknown=True,
        token_scores=True,
        alignments=True,
    )
    options = SearchOptions(
        max_target_tokens=9,
        min_target_tokens=2,
        beam_size=4,
        patience=2.0,
        hypotheses=3,
        length_penalty=0.5,
        coverage_penalty=0.25,
        repetition_penalty=1.25,
        no_repeat_ngram_tokens=3,
        suppressed_ids=(2, 4, 0),
        alignments=True,
    )
    assert LIMITS.plan(fields) == SearchPlan(options, max_target_ratio=1.5, min_target_ratio=0.5, token_scores=True)


def test_every_option_of_sampling_reaches_search() -> None:
    fields = SearchFields(temperature=0.5, top_k=5, top_p=0.75, seed=6, hypotheses=2)
    options = SearchOptions(max_target_tokens=LIMIT, temperature=0.5, top_k=5, top_p=0.75, seed=6, hypotheses=2)
    assert LIMITS.plan(fields) == SearchPlan(options)


def test_sampling_without_a_seed_gets_a_new_one_each_time() -> None:
    seeds = {LIMITS.plan(SearchFields(temperature=1.0)).options.seed for _ in range(8)}
    assert len(seeds) > 1
    assert max(seeds) < 2**SEED_BITS


@pytest.mark.parametrize(
    ("fields", "source_tokens", "expected"),
    [
        (SearchFields(), 5, (0, LIMIT)),
        (SearchFields(max_target_ratio=1.5), 5, (0, 7)),
        (SearchFields(max_target_ratio=0.1), 5, (0, 1)),
        (SearchFields(max_target_ratio=9.0), 5, (0, LIMIT)),
        (SearchFields(max_target_ratio=2.0, max_target_tokens=8), 5, (0, 8)),
        (SearchFields(min_target_ratio=0.5), 5, (3, LIMIT)),
        (SearchFields(min_target_ratio=0.5, min_target_tokens=4), 5, (4, LIMIT)),
        (SearchFields(min_target_ratio=9.0), 5, (LIMIT, LIMIT)),
        (SearchFields(min_target_tokens=9, max_target_ratio=1.0), 5, (5, 5)),
    ],
    ids=str,
)
def test_the_stricter_of_absolute_and_relative_length_counts(
    fields: SearchFields, source_tokens: int, expected: tuple[int, int]
) -> None:
    assert lengths(fields, source_tokens) == expected


ratio = st.floats(0, 100, exclude_min=True)


@given(ratio, st.none() | ratio, st.integers(0, LIMIT), st.integers(1, LIMIT), st.integers(1, 1000))
def test_a_translation_always_has_a_length(
    low: float, high: float | None, minimum: int, maximum: int, source_tokens: int
) -> None:
    plan = SearchPlan(SearchOptions(max_target_tokens=maximum, min_target_tokens=minimum), high, low)
    options = plan.options_for(source_tokens, (), "none")
    assert 0 <= options.min_target_tokens <= options.max_target_tokens
    assert 1 <= options.max_target_tokens <= maximum


def test_a_prefix_may_be_as_long_as_the_translation() -> None:
    fields = SearchFields(max_target_ratio=1.0)
    assert lengths(fields, 5, (1,) * 5) == (0, 5)
    with pytest.raises(InvalidRequestError, match=r"^target_prefix\[0\]: 6 tokens, expected at most 5$"):
        lengths(fields, 5, (1,) * 6)


def test_a_translation_that_is_scored_leaves_room_for_its_end() -> None:
    plan = LIMITS.scoring_plan()
    options = plan.options_for(3, (1,) * (LIMIT - 1), "pairs[0].translation")
    assert (options.forced_end, options.max_target_tokens, plan.token_scores) == (True, LIMIT, True)
    with pytest.raises(InvalidRequestError, match=r"^pairs\[0\]\.translation: 20 tokens, expected at most 19$"):
        plan.options_for(3, (1,) * LIMIT, "pairs[0].translation")


def test_the_unknown_token_counts_among_those_that_are_suppressed() -> None:
    pieces = PIECES[2 : 2 + MAX_SUPPRESSED_IDS]
    assert len(LIMITS.plan(SearchFields(suppressed_tokens=pieces)).options.suppressed_ids) == MAX_SUPPRESSED_IDS
    with pytest.raises(InvalidRequestError, match=r"^options\.suppress_unknown: true, expected false"):
        LIMITS.plan(SearchFields(suppressed_tokens=pieces, suppress_unknown=True))


def test_a_token_that_is_suppressed_twice_counts_once() -> None:
    fields = SearchFields(suppressed_tokens=("<unk>", "piece0", "<unk>"), suppress_unknown=True)
    assert LIMITS.plan(fields).options.suppressed_ids == (0, 2)


@pytest.mark.parametrize(
    ("fields", "repeatable"),
    [(SearchFields(), True), (SearchFields(temperature=1.0, seed=0), True), (SearchFields(temperature=1.0), False)],
)
def test_an_answer_is_repeatable_unless_the_server_chose_the_seed(fields: SearchFields, *, repeatable: bool) -> None:
    assert LIMITS.plan(fields).repeatable == repeatable
