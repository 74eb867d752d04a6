"""Beam search on tables of probabilities: which hypotheses finish, and when a sentence ends."""

import math

import torch
from torch import Tensor

from dragoman.model.network.transformer import DecoderState
from dragoman.model.search import Hypothesis, beam_search
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


def test_a_translated_sentence_leaves_the_batch() -> None:
    long: Table = {(A,) * length: {A: 1.0} for length in range(5)}
    model = TableModel(long, {(): {EOS_ID: 1.0}}, long)
    assert [hypotheses[0].target_ids for hypotheses in model.search(1)] == [(A,) * 5, (), (A,) * 5]
    assert model.rows_of_steps == [3, 2, 2, 2, 2, 2]


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
