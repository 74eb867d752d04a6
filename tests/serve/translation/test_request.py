"""Requests to a model: what the limits of model, slots and operator allow, and the lengths of each text."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.bundle.manifest import BundleDirection
from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.scheduler.sequence import FairnessKey
from dragoman.serve.search.options import MAX_SUPPRESSED_IDS, SearchOptions
from dragoman.serve.translation.fields import SearchFields
from dragoman.serve.translation.request import ModelRequest, RequestLimits, ScoreRequest, TextRequest, TranslateRequest
from dragoman.serve.translation.search_plan import SEED_BITS, SearchLimits, SearchPlan, TargetVocabulary

LIMIT = 20
PIECES = ("<unk>", "</s>", *(f"piece{number}" for number in range(2 * MAX_SUPPRESSED_IDS)))
SEARCH = SearchLimits(
    max_target_tokens=LIMIT, max_rows=5, aligned=True, vocabulary=TargetVocabulary.of(PIECES, unk_id=0, eos_id=1)
)
LIMITS = RequestLimits(max_texts=3, max_text_characters=10, max_rows=8, search=SEARCH)
EN_DE = BundleDirection(source="en", target="de", source_prefix=(7,))
GREEDY = SearchFields()


def prepare(texts: Sequence[str], *, options: SearchFields = GREEDY, target_prefix: Sequence[str] = ()) -> ModelRequest:
    return LIMITS.prepare(TranslateRequest(text=texts, options=options, target_prefix=target_prefix), EN_DE, 7.0)


def prepare_scores(*pairs: tuple[str, str]) -> ModelRequest:
    return LIMITS.prepare_scores(ScoreRequest(pairs=pairs), EN_DE, 7.0)


def texts_of(request: ModelRequest) -> list[str]:
    return [text.text for text in request.texts]


def test_a_valid_request_keeps_all_its_fields() -> None:
    stream = FairnessKey()
    request = TranslateRequest(
        text=["a", "b"],
        options=SearchFields(max_target_tokens=5, token_scores=True),
        target_prefix=["", "c"],
        split_sentences=False,
        priority=-2,
        fairness_key=stream,
    )
    assert LIMITS.prepare(request, EN_DE, 7.0) == ModelRequest(
        (TextRequest("a", "", "text[0]", "target_prefix[0]"), TextRequest("b", "c", "text[1]", "target_prefix[1]")),
        EN_DE,
        SearchPlan(SearchOptions(max_target_tokens=5), token_scores=True),
        7.0,
        split_sentences=False,
        priority=-2,
        fairness_key=stream,
    )


def test_a_valid_request_for_scores_forces_each_translation_and_its_end() -> None:
    assert prepare_scores(("a", "b"), ("c", "")) == ModelRequest(
        (
            TextRequest("a", "b", "pairs[0].text", "pairs[0].translation"),
            TextRequest("c", "", "pairs[1].text", "pairs[1].translation"),
        ),
        EN_DE,
        SearchPlan(SearchOptions(max_target_tokens=LIMIT, forced_end=True), token_scores=True),
        7.0,
    )


@pytest.mark.parametrize(
    ("texts", "prefixes", "field"),
    [
        *(([], [], "text"), (["a"] * 4, [], "text"), (["a", "ä" * 11], [], "text[1]")),
        *(([text], [], "text[0]") for text in ("", "\t\n", "\u2003", "ab\0", "a\ud83d")),
        (["a", "b"], ["a"], "target_prefix"),
        (["a", "b"], ["a", "b", "c"], "target_prefix"),
        (["a"], ["\0"], "target_prefix[0]"),
    ],
)
def test_invalid_texts_and_prefixes_are_refused_by_name(texts: list[str], prefixes: list[str], field: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        prepare(texts, target_prefix=prefixes)
    assert refused.value.field == field


def test_the_longest_text_and_a_blank_prefix_are_accepted() -> None:
    request = prepare(["ä" * 10], target_prefix=[" "])
    assert (texts_of(request), request.texts[0].target_prefix) == (["ä" * 10], " ")


def test_a_request_that_never_fits_is_refused() -> None:
    """Two beams of four fill slots and queue; a third one would wait forever."""
    beam = SearchFields(beam_size=4)
    assert prepare(["a", "b"], options=beam).rows == 8
    with pytest.raises(InvalidRequestError) as refused:
        prepare(["a", "b", "c"], options=beam)
    assert refused.value.field == "text"


any_texts = st.lists(st.text(st.characters(exclude_categories=())))


@given(any_texts, any_texts)
def test_any_texts_are_either_accepted_unchanged_or_refused_by_the_name_of_a_field(
    texts: list[str], prefixes: list[str]
) -> None:
    refused_field = "none"
    try:
        request = prepare(texts, target_prefix=prefixes)
        assert texts_of(request) == texts
        assert [text.target_prefix for text in request.texts] == (prefixes or [""] * len(texts))
    except InvalidRequestError as error:
        refused_field = error.field.split("[")[0]
        str(error).encode()
    assert refused_field in {"none", "text", "target_prefix"}


def test_every_option_reaches_search() -> None:
    common: dict[str, Any] = {"beam_size": 4, "patience": 2.0, "hypotheses": 3}
    common |= {"length_penalty": 0.5, "coverage_penalty": 0.25, "repetition_penalty": 1.25}
    common |= {"max_target_tokens": 9, "min_target_tokens": 2, "no_repeat_ngram_tokens": 3}
    others: dict[str, Any] = {"max_target_ratio": 1.5, "min_target_ratio": 0.5, "token_scores": True}
    others |= {"suppressed_tokens": ("piece0", "piece2"), "suppress_unknown": True, "alignments": "words"}
    fields = SearchFields(**common, **others)
    options = SearchOptions(**common, suppressed_ids=(2, 4, 0), alignments=True)
    assert SEARCH.plan(fields) == SearchPlan(options, 1.5, 0.5, token_scores=True, alignments="words")
    sampling: dict[str, Any] = {"temperature": 0.5, "top_k": 5, "top_p": 0.75, "seed": 6, "hypotheses": 2}
    options = SearchOptions(max_target_tokens=LIMIT, **sampling)
    assert SEARCH.plan(SearchFields(**sampling)) == SearchPlan(options)


def test_sampling_without_a_seed_gets_a_new_one_each_time_and_is_not_repeatable() -> None:
    plans = [SEARCH.plan(SearchFields(temperature=1.0)) for _ in range(8)]
    seeds = {plan.options.seed for plan in plans}
    assert len(seeds) > 1
    assert max(seeds) < 2**SEED_BITS
    assert not any(plan.repeatable for plan in plans)
    assert SEARCH.plan(SearchFields(temperature=1.0, seed=0)).repeatable
    assert SEARCH.plan(GREEDY).repeatable


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
    options = SEARCH.plan(fields).options_for(source_tokens, (), "none")
    assert (options.min_target_tokens, options.max_target_tokens) == expected


ratio = st.floats(0, 100, exclude_min=True)


@given(ratio, st.none() | ratio, st.integers(0, LIMIT), st.integers(1, LIMIT), st.integers(1, 1000))
def test_a_translation_always_has_a_length(
    low: float, high: float | None, minimum: int, maximum: int, source_tokens: int
) -> None:
    plan = SearchPlan(SearchOptions(max_target_tokens=maximum, min_target_tokens=minimum), high, low)
    options = plan.options_for(source_tokens, (), "none")
    assert 0 <= options.min_target_tokens <= options.max_target_tokens
    assert 1 <= options.max_target_tokens <= maximum


@pytest.mark.parametrize(
    ("plan", "longest"),
    [(SEARCH.plan(SearchFields(max_target_ratio=1.0)), 5), (SEARCH.scoring_plan(), LIMIT - 1)],
    ids=["as long as the translation", "with room for the forced end"],
)
def test_a_prefix_that_exceeds_the_longest_translation_is_refused(plan: SearchPlan, longest: int) -> None:
    assert plan.options_for(5, (2,) * longest, "target_prefix[0]").target_prefix == (2,) * longest
    with pytest.raises(InvalidRequestError) as refused:
        plan.options_for(5, (2,) * (longest + 1), "target_prefix[0]")
    assert refused.value.field == "target_prefix[0]"


def test_suppressed_tokens_and_the_unknown_token_count_once_each() -> None:
    fields = SearchFields(suppressed_tokens=("<unk>", "piece0", "<unk>"), suppress_unknown=True)
    assert SEARCH.plan(fields).options.suppressed_ids == (0, 2)
    most = PIECES[2 : 2 + MAX_SUPPRESSED_IDS]
    assert len(SEARCH.plan(SearchFields(suppressed_tokens=most)).options.suppressed_ids) == MAX_SUPPRESSED_IDS
    with pytest.raises(InvalidRequestError) as refused:
        SEARCH.plan(SearchFields(suppressed_tokens=most, suppress_unknown=True))
    assert refused.value.field == "options.suppress_unknown"
