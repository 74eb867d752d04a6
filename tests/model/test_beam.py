"""Beam search on tables of probabilities: which hypotheses finish, and when a sentence ends."""

import math

import pytest
import torch
from torch import Tensor

from dragoman.model.network.translation_model import DecoderState
from dragoman.model.search import Hypothesis, beam_search, normalize
from dragoman.model.tokenizer.tokenizer import BOS_ID, EOS_ID

A, B, C = 4, 5, 6
VOCABULARY = 7
IMPROBABLE = 1e-9

# Probabilities of the next token per target so far; missing tokens are improbable.
Table = dict[tuple[int, ...], dict[int, float]]


class TableModel:
    """A decoder with fixed probabilities. Its state is the target so far; each sentence has a table."""

    def __init__(self, *tables: Table) -> None:
        self.tables = tables
        self.rows_of_steps: list[int] = []

    def start(self) -> DecoderState:
        count = len(self.tables)
        return {"history": torch.zeros(count, 0, dtype=torch.int64), "sentence": torch.arange(count)}

    def decode_step(self, token_ids: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        self.rows_of_steps.append(len(token_ids))
        history = torch.cat((state["history"], token_ids[:, None]), dim=1)
        logits = torch.full((len(token_ids), VOCABULARY), math.log(IMPROBABLE))
        for row, (sentence, ids) in enumerate(zip(state["sentence"].tolist(), history.tolist(), strict=True)):
            assert ids[0] == BOS_ID
            for token_id, probability in self.tables[sentence].get(tuple(ids[1:]), {EOS_ID: 1.0}).items():
                logits[row, token_id] = math.log(probability)
        return logits, {"history": history, "sentence": state["sentence"]}

    def search(self, beam_size: int, length_penalty: float = 1.0, limit: int = 8) -> list[list[Hypothesis]]:
        return beam_search(self.decode_step, self.start(), beam_size, length_penalty, limit)


def test_beam_search_finds_what_greedy_search_misses() -> None:
    table: Table = {(): {A: 0.6, B: 0.4}, (A,): {A: 0.5, B: 0.5}, (B,): {C: 1.0}}
    assert TableModel(table).search(1)[0][0].target_ids[0] == A
    best = TableModel(table).search(2)[0][0]
    assert best.target_ids == (B, C)
    assert best.score == pytest.approx(math.log(0.4), abs=1e-5)


def test_hypotheses_come_best_first_by_their_normalized_score() -> None:
    (found,) = TableModel({(): {A: 0.5, EOS_ID: 0.3, B: 0.2}}).search(3)
    assert [hypothesis.target_ids for hypothesis in found] == [(A,), (B,), ()]
    expected = [math.log(0.5) / 2, math.log(0.2) / 2, math.log(0.3)]
    assert [hypothesis.normalized_score for hypothesis in found] == pytest.approx(expected, abs=1e-5)


def test_the_length_penalty_decides_between_short_and_long() -> None:
    table: Table = {(): {EOS_ID: 0.4, A: 0.6}, (A,): {B: 0.55, C: 0.45}, (A, B): {EOS_ID: 1.0}}
    assert TableModel(table).search(2, length_penalty=0.0)[0][0].target_ids == ()
    assert TableModel(table).search(2, length_penalty=1.0)[0][0].target_ids == (A, B)


def test_an_end_that_is_not_among_the_best_k_finishes_nothing() -> None:
    (found,) = TableModel({(): {A: 0.5, B: 0.3, EOS_ID: 0.2}}).search(2)
    assert {hypothesis.target_ids for hypothesis in found} == {(A,), (B,)}


def test_finished_hypotheses_leave_their_places_to_others() -> None:
    """With a beam of 2, both A and B continue although EOS is among the best two."""
    table: Table = {(): {EOS_ID: 0.4, A: 0.35, B: 0.25}, (A,): {C: 0.6, A: 0.4}, (B,): {C: 1.0}}
    (found,) = TableModel(table).search(2)
    assert found[0].target_ids == (B, C)


def test_a_sentence_ends_when_as_many_hypotheses_as_the_beam_holds_are_finished() -> None:
    """First come, first served, even if a live hypothesis would have won later."""
    table: Table = {(): {EOS_ID: 0.5, A: 0.5}, (A,): {EOS_ID: 0.6, B: 0.4}, (A, B): {C: 1.0}}
    model = TableModel(table)
    (found,) = model.search(2)
    assert {hypothesis.target_ids for hypothesis in found} == {(), (A,)}
    assert len(model.rows_of_steps) == 2


def test_a_translated_sentence_leaves_the_batch() -> None:
    long: Table = {(A,) * length: {A: 1.0} for length in range(5)}
    model = TableModel(long, {(): {EOS_ID: 1.0}}, long)
    assert [hypotheses[0].target_ids for hypotheses in model.search(1)] == [(A,) * 5, (), (A,) * 5]
    assert model.rows_of_steps == [3, 2, 2, 2, 2, 2]


def test_at_the_limit_live_hypotheses_compete_with_finished_ones() -> None:
    table: Table = {(): {A: 0.5, EOS_ID: 0.3, B: 0.2}, (A,): {A: 1.0}, (B,): {B: 1.0}}
    (found,) = TableModel(table).search(2, limit=2)
    assert [hypothesis.target_ids for hypothesis in found] == [(A, A), (B, B)]
    assert found[0].normalized_score == pytest.approx(math.log(0.5) / 2, abs=1e-5)
    (found,) = TableModel(table).search(2, length_penalty=0.0, limit=2)
    assert [hypothesis.target_ids for hypothesis in found] == [(A, A), ()]


def test_a_beam_wider_than_the_vocabulary_searches_what_there_is() -> None:
    (found,) = TableModel({(): {A: 0.7, B: 0.3}}).search(20, limit=2)
    assert [hypothesis.target_ids for hypothesis in found[:2]] == [(A,), (B,)]
    assert all(math.isfinite(hypothesis.score) for hypothesis in found)


def test_nan_logits_do_not_break_the_search() -> None:
    """Training validates a diverged model too."""

    def decode_step(token_ids: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        return torch.full((len(token_ids), VOCABULARY), math.nan), state

    found = beam_search(decode_step, {"row": torch.zeros(2)}, 3, 1.0, 4)
    assert all(hypotheses and math.isnan(hypotheses[0].score) for hypotheses in found)


@pytest.mark.parametrize(("length_penalty", "expected"), [(0.0, -6.0), (1.0, -1.5), (0.5, -3.0)])
def test_the_score_is_divided_by_a_power_of_the_length(length_penalty: float, expected: float) -> None:
    assert normalize(-6.0, 4, length_penalty) == pytest.approx(expected)
