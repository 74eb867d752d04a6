"""The slow reference search: the same beam search as in training, and each option on literal answers."""

import math
import zlib
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from dragoman.model.network.translation_model import DecoderState
from dragoman.model.search import beam_search
from dragoman.serve.search.hypothesis import MIN_COVERAGE, FinishReason
from dragoman.serve.search.options import SearchOptions
from dragoman.serve.search.sampling import uniforms
from tests.support import search_reference
from tests.support.search_reference import BrokenSearchError, Found, Tokens

BOS_ID, EOS_ID = 1, 2
VOCABULARY = 7
A, B, C = 4, 5, 6
IMPROBABLE = 1e-9

# Probabilities of the next token by the target so far; tokens that are not listed are improbable.
Table = dict[Tokens, dict[int, float]]

OPTIONS = SearchOptions(max_target_tokens=5)
SAMPLED = OPTIONS._replace(temperature=1.0)
BEAM = OPTIONS._replace(beam_size=2, hypotheses=2)
KINDS = [pytest.param(OPTIONS, id="greedy"), pytest.param(SAMPLED, id="sampled"), pytest.param(BEAM, id="beam")]


def random_logits(sentence: int, tokens: Tokens) -> NDArray[np.float64]:
    """Returns random logits of the next token, [V], which float32 represents exactly."""
    generator = np.random.default_rng(zlib.crc32(np.array([sentence, *tokens]).tobytes()))
    return generator.normal(scale=1.5, size=VOCABULARY).astype(np.float32).astype(np.float64)


def table_logits(table: Table, tokens: Tokens) -> NDArray[np.float64]:
    probabilities = np.full(VOCABULARY, IMPROBABLE)
    for token_id, probability in table.get(tokens, {EOS_ID: 1.0}).items():
        probabilities[token_id] = probability
    logits: NDArray[np.float64] = np.log(probabilities)
    return logits


def search(table: Table, options: SearchOptions) -> list[Found]:
    return search_reference.search(partial(table_logits, table), options, eos_id=EOS_ID)


def search_randomly(sentence: int, options: SearchOptions) -> list[Found]:
    return search_reference.search(partial(random_logits, sentence), options, eos_id=EOS_ID)


def targets(found: list[Found]) -> list[Tokens]:
    return [hypothesis.target_ids for hypothesis in found]


def training_step(token_ids: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
    """A decoder step with the logits of `random_logits`; a row's state is its sentence and its tokens."""
    history = torch.cat((state["history"], token_ids[:, None]), dim=1)
    rows = zip(state["sentence"].tolist(), history.tolist(), strict=True)
    logits = np.array([random_logits(sentence, tuple(ids[1:])) for sentence, ids in rows])
    return torch.from_numpy(logits), {"history": history, "sentence": state["sentence"]}


@pytest.mark.parametrize("beam_size", [1, 2, 4, 9])
@pytest.mark.parametrize("length_penalty", [0.0, 0.7, 1.5])
def test_beam_search_finds_what_it_finds_in_training(beam_size: int, length_penalty: float) -> None:
    state = {"history": torch.zeros(10, 0, dtype=torch.int64), "sentence": torch.arange(10)}
    trained = beam_search(training_step, state, beam_size, length_penalty, 5, bos_id=BOS_ID, eos_id=EOS_ID)
    options = OPTIONS._replace(beam_size=beam_size, hypotheses=beam_size, length_penalty=length_penalty)
    for sentence, expected in enumerate(trained):
        found = search_randomly(sentence, options)
        assert targets(found) == [hypothesis.target_ids for hypothesis in expected]
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.score == pytest.approx(theirs.score, rel=1e-5)
            assert ours.normalized_score == pytest.approx(theirs.normalized_score, rel=1e-5)


def test_greedy_search_is_beam_search_with_one_hypothesis() -> None:
    for sentence in range(20):
        seen = search_reference.Sentence(partial(random_logits, sentence), OPTIONS, EOS_ID, None)
        assert search_reference.beam(seen) == [search_reference.greedy(seen)]


def test_ties_go_to_the_lowest_token() -> None:
    table: Table = {(): {B: 0.3, A: 0.3, C: 0.3}}
    assert targets(search(table, OPTIONS)) == [(A,)]
    assert targets(search(table, BEAM)) == [(A,), (B,)]


def test_the_scores_are_those_of_the_tokens_and_of_the_end() -> None:
    (found,) = search({(): {A: 0.5, B: 0.25}, (A,): {EOS_ID: 0.8, B: 0.1}}, OPTIONS)
    # The unlisted tokens have almost no probability, so the listed ones are renormalized to nearly 1.
    expected = [math.log(0.5 / 0.75), math.log(0.8 / 0.9)]
    assert found.token_scores == pytest.approx(expected, abs=1e-6)
    assert found.score == pytest.approx(sum(expected), abs=1e-6)
    assert found.normalized_score == pytest.approx(sum(expected) / 2, abs=1e-6)
    assert found.finish_reason == FinishReason.EOS


@pytest.mark.parametrize("options", KINDS)
def test_a_hypothesis_is_cut_at_the_limit_without_a_test_for_the_end(options: SearchOptions) -> None:
    requested = []

    def next_logits(tokens: Tokens) -> NDArray[np.float64]:
        requested.append(len(tokens))
        return table_logits({(): {A: 1.0}, (A,): {B: 1.0}}, tokens)

    found = search_reference.search(next_logits, options._replace(max_target_tokens=2), eos_id=EOS_ID)[0]
    assert (found.target_ids, found.finish_reason) == ((A, B), FinishReason.LENGTH)
    assert len(found.token_scores) == 2
    assert max(requested) == 1


@pytest.mark.parametrize("options", KINDS)
def test_rules_about_tokens_and_lengths_are_kept(options: SearchOptions) -> None:
    for sentence in range(10):
        for found in search_randomly(sentence, options._replace(min_target_tokens=4)):
            assert len(found.target_ids) >= 4
        for found in search_randomly(sentence, options._replace(suppressed_ids=(A, 0, 3))):
            assert {A, 0, 3}.isdisjoint(found.target_ids)
        for found in search_randomly(sentence, options._replace(max_target_tokens=8, no_repeat_ngram_tokens=2)):
            pairs = list(zip(found.target_ids, found.target_ids[1:], strict=False))
            assert len(set(pairs)) == len(pairs)


def test_the_other_tokens_share_the_probability_of_forbidden_ones() -> None:
    (found,) = search({(): {A: 0.5, B: 0.3, C: 0.2}}, OPTIONS._replace(suppressed_ids=(A,)))
    assert found.target_ids == (B,)
    assert found.token_scores[0] == pytest.approx(math.log(0.6), abs=1e-6)


def test_a_repetition_penalty_favors_other_tokens() -> None:
    """The logits of A and B are log(0.6) and log(0.4); a penalty of 2 squares the probability of A: 0.36."""
    table: Table = {(): {A: 1.0}, (A,): {A: 0.6, B: 0.4}}
    (found,) = search(table, OPTIONS._replace(repetition_penalty=2.0))
    assert found.target_ids == (A, B)
    assert found.token_scores[1] == pytest.approx(math.log(0.4 / 0.76), abs=1e-6)


@pytest.mark.parametrize("options", KINDS)
def test_a_prefix_is_taken_whatever_its_probability_and_scored_without_constraints(options: SearchOptions) -> None:
    table: Table = {(): {A: 0.75, B: 0.25}, (B,): {C: 1.0}}
    constrained = options._replace(target_prefix=(B,), suppressed_ids=(A, B), repetition_penalty=3.0)
    found = search(table, constrained)[0]
    assert found.target_ids == (B, C)
    assert found.token_scores == pytest.approx([math.log(0.25), 0.0, 0.0], abs=1e-6)


def test_one_hypothesis_lives_until_the_prefix_is_used_up() -> None:
    table: Table = {(): {A: 0.5, EOS_ID: 0.5}, (A,): {B: 0.6, C: 0.4}}
    assert targets(search(table, BEAM._replace(target_prefix=(A,)))) == [(A, B), (A, C)]


def test_the_prefix_counts_for_all_rules_about_tokens_and_lengths() -> None:
    prefix = OPTIONS._replace(target_prefix=(A, B, A))
    table: Table = {(A, B, A): {B: 0.9, C: 0.1}}
    assert targets(search(table, prefix)) == [(A, B, A, B)]
    assert targets(search(table, prefix._replace(no_repeat_ngram_tokens=2))) == [(A, B, A, C)]
    assert targets(search(table, prefix._replace(repetition_penalty=99.0))) == [(A, B, A, C)]
    assert targets(search({}, prefix._replace(min_target_tokens=3))) == [(A, B, A)]
    assert targets(search(table, prefix._replace(max_target_tokens=4))) == [(A, B, A, B)]
    cut = search(table, prefix._replace(max_target_tokens=3))[0]
    assert (cut.target_ids, cut.finish_reason) == ((A, B, A), FinishReason.LENGTH)


@pytest.mark.parametrize("options", KINDS)
def test_a_forced_end_is_scored_at_the_longest_length_as_well(options: SearchOptions) -> None:
    table: Table = {(): {A: 0.5, B: 0.5}, (A,): {EOS_ID: 0.25, B: 0.75}}
    forced = options._replace(max_target_tokens=1, min_target_tokens=1, target_prefix=(A,), forced_end=True)
    found = search(table, forced)[0]
    assert (found.target_ids, found.finish_reason) == ((A,), FinishReason.EOS)
    assert found.token_scores == pytest.approx([math.log(0.5), math.log(0.25)], abs=1e-6)
    empty = search({(): {A: 0.5, EOS_ID: 0.5}}, options._replace(forced_end=True))[0]
    assert (empty.target_ids, empty.finish_reason) == ((), FinishReason.EOS)
    assert empty.token_scores == pytest.approx([math.log(0.5)], abs=1e-6)


@pytest.mark.parametrize("options", KINDS)
def test_a_translation_that_was_found_has_the_same_scores_when_it_is_given(options: SearchOptions) -> None:
    for sentence in range(10):
        best = search_randomly(sentence, options)[0]
        ended = best.finish_reason == FinishReason.EOS
        given = options._replace(target_prefix=best.target_ids, forced_end=ended)
        assert search_randomly(sentence, given) == [best]


@pytest.mark.parametrize(("patience", "expected"), [(0.1, 1), (0.5, 1), (1.0, 2), (2.0, 4)])
def test_patience_sets_the_number_of_finished_hypotheses(patience: float, expected: int) -> None:
    """After each token the end token is second best: each step finishes one more hypothesis."""
    options = BEAM._replace(max_target_tokens=9, patience=patience)
    table: Table = {(A,) * length: {A: 0.7, EOS_ID: 0.29, B: 0.01} for length in range(9)}
    sentence = search_reference.Sentence(partial(table_logits, table), options, EOS_ID, None)
    assert targets(search_reference.beam(sentence)) == [(A,) * length for length in range(expected)]


def test_the_coverage_penalty_prefers_attention_to_the_whole_source() -> None:
    """A attends to the first source token only, B to both; the end token adds no attention."""

    def attention(tokens: Tokens) -> NDArray[np.float64]:
        return np.array({(): [0.5, 0.0], (A,): [0.5, 0.0], (B,): [0.5, 1.0]}[tokens])

    next_logits = partial(table_logits, {(): {A: 0.6, B: 0.4}})
    plain = search_reference.search(next_logits, BEAM, eos_id=EOS_ID, attention=attention)
    options = BEAM._replace(coverage_penalty=0.1)
    covered = search_reference.search(next_logits, options, eos_id=EOS_ID, attention=attention)
    assert targets(plain) == [(A,), (B,)]
    assert targets(covered) == [(B,), (A,)]
    assert covered[0].normalized_score == plain[1].normalized_score
    assert covered[1].normalized_score == pytest.approx(plain[0].normalized_score + 0.1 * math.log(MIN_COVERAGE))


def test_samples_come_best_first_and_each_from_its_own_numbers() -> None:
    several = search_randomly(3, SAMPLED._replace(hypotheses=6))
    scores = [hypothesis.normalized_score for hypothesis in several]
    assert scores == sorted(scores, reverse=True)
    assert len(set(targets(several))) > 1
    assert search_randomly(3, SAMPLED)[0] in several
    assert search_randomly(3, SAMPLED._replace(hypotheses=6)) == several
    assert search_randomly(3, SAMPLED._replace(hypotheses=6, seed=1)) != several


def test_the_number_of_its_position_decides_each_token() -> None:
    table: Table = {tokens: {A: 0.5, B: 0.5} for length in range(5) for tokens in product([A, B], repeat=length)}
    (found,) = search(table, SAMPLED._replace(seed=8))
    assert found.target_ids == tuple(A if number < 0.5 else B for number in uniforms(8, 0, 5))


def test_a_sample_continues_unchanged_after_its_own_prefix() -> None:
    for sentence in range(10):
        (drawn,) = search_randomly(sentence, SAMPLED)
        assert search_randomly(sentence, SAMPLED._replace(target_prefix=drawn.target_ids[:2])) == [drawn]


@pytest.mark.parametrize("narrow", [{"top_k": 1}, {"top_p": 0.0}, {"temperature": 1e-9}])
def test_a_sample_of_the_most_probable_tokens_is_what_greedy_search_finds(narrow: dict[str, Any]) -> None:
    for sentence in range(10):
        assert search_randomly(sentence, SAMPLED._replace(**narrow)) == search_randomly(sentence, OPTIONS)


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize(
    ("logit", "rule"),
    [
        (math.nan, {"suppressed_ids": (A,)}),
        (math.inf, {"suppressed_ids": (A,)}),
        (-math.inf, {"target_prefix": (A,)}),
        (0.0, {"suppressed_ids": tuple(range(VOCABULARY))}),
    ],
    ids=["NaN", "infinity", "impossible forced token", "no token left"],
)
def test_steps_without_probabilities_break_a_search(options: SearchOptions, logit: float, rule: dict[str, Any]) -> None:
    def next_logits(tokens: Tokens) -> NDArray[np.float64]:
        logits = random_logits(0, tokens)
        logits[A] = logit
        return logits

    with pytest.raises(BrokenSearchError):
        search_reference.search(next_logits, options._replace(**rule), eos_id=EOS_ID)
