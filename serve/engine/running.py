"""A running sequence: its rows in the model, and the hypotheses that it extends and finishes."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from dragoman.serve.scheduler.sequence import DecodingSequence
from dragoman.serve.search import beam
from dragoman.serve.search.beam import Branch
from dragoman.serve.search.live import Attention, LiveHypothesis, Token
from dragoman.serve.search.patience import enough_hypotheses


class Choice(NamedTuple):
    """What a hypothesis may continue with.

    Attributes:
        tokens: best first: 2K in a beam of K, else the chosen one.
        attention: attention of the step; None if the sequence does not keep it.
    """

    tokens: list[Token]
    attention: Attention | None


@dataclass(slots=True, eq=False)
class RunningSequence:
    """A sequence in an engine.

    Attributes:
        sequence: gets the finished hypotheses.
        rows: its rows of the state until it is over, as many as its hypotheses may become.
        live: the hypotheses that go on: those of a beam, best first, or those of the samples.
    """

    sequence: DecodingSequence
    rows: list[int]
    live: list[LiveHypothesis] = field(init=False)

    def __post_init__(self) -> None:
        # A beam starts with one hypothesis, the empty one.
        first = self.rows if self.sequence.options.sampled else self.rows[:1]
        self.live = [LiveHypothesis(row, number) for number, row in enumerate(first)]

    @property
    def source_tokens(self) -> int:
        """Length of the source."""
        return len(self.sequence.source_ids)

    def advance(self, choices: list[Choice], eos_id: int) -> list[Branch]:
        """Extends or finishes every hypothesis; returns the states to copy before the next step."""
        self.sequence.decoded_tokens += len(self.live)
        if self.sequence.options.examined > 1:
            return self._advance_beam(choices, eos_id)
        self._advance_each(choices, eos_id)
        return []

    def _advance_each(self, choices: list[Choice], eos_id: int) -> None:
        """Greedy search has one hypothesis, and sampling one for each sample."""
        longer = []
        for hypothesis, (tokens, attention) in zip(self.live, choices, strict=True):
            token = Token(eos_id, math.nan) if math.isnan(tokens[0].score) else tokens[0]
            longer.append(hypothesis.extended(token, attention))
        self._finish([item for item in longer if item.tokens[-1].token_id == eos_id], eos_id)
        self.live = [item for item in longer if item.tokens[-1].token_id != eos_id]
        self._cut(eos_id)

    def _advance_beam(self, choices: list[Choice], eos_id: int) -> list[Branch]:
        options, size = self.sequence.options, self.sequence.options.beam_size
        attention = {item.row: choice.attention for item, choice in zip(self.live, choices, strict=True)}
        if any(math.isnan(token.score) for choice in choices for token in choice.tokens):
            self._finish([self.live[0].extended(Token(eos_id, math.nan), choices[0].attention)], eos_id)
            self.live = []
            return []
        candidates = beam.expand(self.live, [choice.tokens for choice in choices], size)
        ended = beam.ended(candidates, size, eos_id)
        self._finish([item.origin.extended(item.token, attention[item.origin.row]) for item in ended], eos_id)
        if len(self.sequence.hypotheses) >= enough_hypotheses(options.patience, size):
            self.live = []
            return []
        following = beam.survivors(candidates, size, eos_id)
        placement = beam.place(following, self.rows)
        self.live = [
            origin.extended(candidate.token, attention[candidate.origin.row])
            for origin, candidate in zip(placement.origins, following, strict=True)
        ]
        self._cut(eos_id)
        return placement.branches if self.live else []

    def _cut(self, eos_id: int) -> None:
        """Finishes the hypotheses at the largest length, which all of them reach in the same step."""
        if self.live and len(self.live[0].tokens) == self.sequence.options.max_target_tokens:
            self._finish(self.live, eos_id)
            self.live = []

    def _finish(self, hypotheses: list[LiveHypothesis], eos_id: int) -> None:
        options = self.sequence.options
        self.sequence.hypotheses += [
            hypothesis.finished(options, self.source_tokens, eos_id) for hypothesis in hypotheses
        ]
