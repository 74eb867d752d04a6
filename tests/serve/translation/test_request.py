"""Requests to a model: what the limits of model, slots and operator allow, and the lengths of each text."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.bundle.manifest import BundleDirection
from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.scheduler.sequence import FairnessKey
from dragoman.serve.search.options import MAX_SUPPRESSED_IDS, SearchOptions
from dragoman.serve.translation.fields import SearchFields
from dragoman.serve.translation.job import Job, Sentence
from dragoman.serve.translation.request import SEED_BITS, RequestLimits, ScoreRequest, SearchLimits, TranslateRequest
from dragoman.serve.translation.segments import TargetVocabulary

LIMIT = 20
PIECES = ("<unk>", "</s>", *(f"piece{number}" for number in range(2 * MAX_SUPPRESSED_IDS)))
SEARCH = SearchLimits(
    max_target_tokens=LIMIT,
    max_rows=5,
    beam_size=1,
    aligned=True,
    vocabulary=TargetVocabulary.of(PIECES, unk_id=0, eos_id=1),
    shortlist=False,
)
LIMITS = RequestLimits(max_texts=3, max_text_characters=10, max_rows=8, search=SEARCH)
EN_DE = BundleDirection(source="en", target="de", source_prefix=(7,))
GREEDY = SearchFields()


def prepare(texts: Sequence[str], *, options: SearchFields = GREEDY, target_prefix: Sequence[str] = ()) -> Job:
    return LIMITS.prepare(TranslateRequest(text=texts, options=options, target_prefix=target_prefix), EN_DE, 7.0)


def prepare_scores(*pairs: tuple[str, str]) -> Job:
    return LIMITS.prepare_scores(ScoreRequest(pairs=pairs), EN_DE, 7.0)


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
    assert LIMITS.prepare(request, EN_DE, 7.0) == Job(
        texts=["a", "b"],
        target_prefixes=["", "c"],
        direction=EN_DE,
        options=SearchOptions(max_target_tokens=5),
        fields=SearchFields(max_target_tokens=5, token_scores=True),
        deadline_seconds=7.0,
        split_sentences=False,
        priority=-2,
        fairness_key=stream,
    )


@pytest.mark.parametrize(
    ("options", "beam_size"),
    [({}, 4), ({"length_penalty": 0.5}, 4), ({"beam_size": 1}, 1), ({"beam_size": 2}, 2), ({"temperature": 1.0}, 1)],
)
def test_the_beam_of_the_model_serves_requests_that_choose_neither_a_beam_nor_sampling(
    options: dict[str, Any], beam_size: int
) -> None:
    fields, search = replace(SEARCH, beam_size=4).options(SearchFields.parse(options))
    assert (fields.beam_size, search.beam_size, fields.rows) == (beam_size, beam_size, beam_size)


def test_a_valid_request_for_scores_forces_each_translation_and_its_end() -> None:
    assert prepare_scores(("a", "b"), ("c", "")) == Job(
        texts=["a", "c"],
        target_prefixes=["b", ""],
        direction=EN_DE,
        options=SearchOptions(max_target_tokens=LIMIT, forced_end=True),
        fields=SearchFields(token_scores=True),
        deadline_seconds=7.0,
        scored=True,
    )


def test_the_longest_text_and_a_blank_prefix_are_accepted() -> None:
    job = prepare(["ä" * 10], target_prefix=[" "])
    assert (job.texts, job.target_prefixes) == (["ä" * 10], [" "])


any_texts = st.lists(st.text(st.characters(exclude_categories=())))


@given(any_texts, any_texts)
def test_any_texts_are_either_accepted_unchanged_or_refused_by_the_name_of_a_field(
    texts: list[str], prefixes: list[str]
) -> None:
    refused_field = "none"
    try:
        job = prepare(texts, target_prefix=prefixes)
        assert (job.texts, job.target_prefixes) == (texts, prefixes)
    except InvalidRequestError as error:
        refused_field = error.field.split("[")[0]
        str(error).encode()
    assert refused_field in {"none", "text", "target_prefix"}


def test_every_option_reaches_search() -> None:
    common: dict[str, Any] = {"beam_size": 4, "patience": 2.0, "hypotheses": 3}
    common |= {"length_penalty": 0.5, "coverage_penalty": 0.25, "repetition_penalty": 1.25}
    common |= {"max_target_tokens": 9, "min_target_tokens": 2, "no_repeat_ngram_tokens": 3, "shortlist": True}
    others: dict[str, Any] = {"max_target_ratio": 1.5, "min_target_ratio": 0.5, "token_scores": True}
    others |= {"suppressed_tokens": ("piece0", "piece2"), "suppress_unknown": True, "alignments": "words"}
    fields = SearchFields(**common, **others)
    options = SearchOptions(**common, suppressed_ids=(2, 4, 0), alignments=True)
    job = prepare(["a"], options=fields)
    assert (job.options, job.fields) == (options, fields)
    sampling: dict[str, Any] = {"temperature": 0.5, "top_k": 5, "top_p": 0.75, "seed": 6, "hypotheses": 2}
    options = SearchOptions(max_target_tokens=LIMIT, **sampling)
    assert SEARCH.options(SearchFields(**sampling))[1] == options


@pytest.mark.parametrize("default", [False, True])
def test_a_request_that_does_not_choose_uses_the_shortlist_as_the_server_sets_it(default: bool) -> None:
    limits = replace(SEARCH, shortlist=default)
    used = [limits.options(SearchFields(shortlist=choice))[1].shortlist for choice in (None, False, True)]
    assert used == [default, False, True]


def test_scores_of_given_translations_use_no_shortlist() -> None:
    limits = replace(LIMITS, search=replace(SEARCH, shortlist=True))
    assert not limits.prepare_scores(ScoreRequest(pairs=[("a", "b")]), EN_DE, 7.0).options.shortlist


def test_sampling_without_a_seed_gets_a_new_one_each_time_and_is_not_repeatable() -> None:
    seeds = {SEARCH.options(SearchFields(temperature=1.0))[1].seed for _ in range(8)}
    assert len(seeds) > 1
    assert max(seeds) < 2**SEED_BITS
    assert not SearchFields(temperature=1.0).repeatable
    assert SearchFields(temperature=1.0, seed=0).repeatable
    assert GREEDY.repeatable


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
    options = prepare(["a"], options=fields).options_for(Sentence((1,) * source_tokens))
    assert (options.min_target_tokens, options.max_target_tokens) == expected


ratio = st.floats(0, 100, exclude_min=True)


@given(ratio, st.none() | ratio, st.integers(0, LIMIT), st.integers(1, LIMIT), st.integers(1, 1000))
def test_a_translation_always_has_a_length(
    low: float, high: float | None, minimum: int, maximum: int, source_tokens: int
) -> None:
    job = prepare(["a"])
    job.options = SearchOptions(max_target_tokens=maximum, min_target_tokens=minimum)
    job.fields = SearchFields.model_construct(max_target_ratio=high, min_target_ratio=low)
    options = job.options_for(Sentence((1,) * source_tokens))
    assert 0 <= options.min_target_tokens <= options.max_target_tokens
    assert 1 <= options.max_target_tokens <= maximum


@pytest.mark.parametrize(
    ("job", "longest", "field"),
    [
        (prepare(["a"], options=SearchFields(max_target_ratio=1.0)), 5, "target_prefix[0]"),
        (prepare_scores(("a", "b")), LIMIT - 1, "pairs[0].translation"),
    ],
    ids=["as long as the translation", "with room for the forced end"],
)
def test_a_prefix_that_exceeds_the_longest_translation_is_refused(job: Job, longest: int, field: str) -> None:
    sentence = Sentence((1,) * 5)
    assert job.options_for(sentence, (2,) * longest).target_prefix == (2,) * longest
    with pytest.raises(InvalidRequestError) as refused:
        job.options_for(sentence, (2,) * (longest + 1))
    assert refused.value.field == field


def test_suppressed_tokens_and_the_unknown_token_count_once_each() -> None:
    fields = SearchFields(suppressed_tokens=("<unk>", "piece0", "<unk>"), suppress_unknown=True)
    assert SEARCH.options(fields)[1].suppressed_ids == (0, 2)
    most = PIECES[2 : 2 + MAX_SUPPRESSED_IDS]
    assert len(SEARCH.options(SearchFields(suppressed_tokens=most))[1].suppressed_ids) == MAX_SUPPRESSED_IDS
    with pytest.raises(InvalidRequestError) as refused:
        SEARCH.options(SearchFields(suppressed_tokens=most, suppress_unknown=True))
    assert refused.value.field == "options.suppress_unknown"
