"""The slow reference search: the same beam search as in training, and each option on literal answers."""

import math
import zlib
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from dragoman.model.network.transformer import DecoderState
from dragoman.model.search import beam_search
from dragoman.serve.search.hypothesis import MIN_COVERAGE, FinishReason
from dragoman.serve.search.options import SearchOptions
from dragoman.serve.search.sampling import uniforms
from tests.support import search_reference
from tests.support.search_reference import Found, Tokens

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


def test_the_other_tokens_share_the_probability_of_forbidden_ones() -> None:
    (found,) = search({(): {A: 0.5, B: 0.3, C: 0.2}}, OPTIONS._replace(suppressed_ids=(A,)))
    assert found.target_ids == (B,)
    assert found.token_scores[0] == pytest.approx(math.log(0.6), abs=1e-6)


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
