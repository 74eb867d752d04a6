"""One step of all running sequences: what the model computes, and the tokens that follow from its scores.

Shapes: R live hypotheses, M some of them, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.engine.running import Choice, RunningSequence
from dragoman.serve.runtime.model import Scores
from dragoman.serve.search.beam import Branch
from dragoman.serve.search.constraints import constrain, keep
from dragoman.serve.search.live import Attention, LiveHypothesis, Token
from dragoman.serve.search.options import SearchOptions
from dragoman.serve.search.sampling import draw, uniforms


@dataclass(frozen=True, slots=True)
class Row:
    """A hypothesis in a step.

    Attributes:
        hypothesis: the tokens so far.
        forced_id: the token that must come next; None: any.
    """

    running: RunningSequence
    hypothesis: LiveHypothesis
    forced_id: int | None

    @property
    def options(self) -> SearchOptions:
        """The options of its sequence."""
        return self.running.sequence.options

    @property
    def constrained(self) -> bool:
        """Whether constraints change its logits."""
        if self.forced_id is not None:
            return False
        return self.options.constrained or self.options.begins_word(len(self.hypothesis.tokens))

    @property
    def changed(self) -> bool:
        """Whether constraints or a shortlist change its logits."""
        return self.constrained or self.running.candidates is not None

    @property
    def starting(self) -> bool:
        """Whether the forced token selects the target language, which has score 0."""
        return len(self.hypothesis.tokens) < self.options.start_tokens

    @property
    def drawn(self) -> bool:
        """Whether its next token is sampled."""
        return self.forced_id is None and self.options.sampled


@dataclass(slots=True)
class Step:
    """The live hypotheses of all sequences, in one step of the model; `continuing_ids`: tokens that continue a word."""

    running: Sequence[RunningSequence]
    bos_id: int
    eos_id: int
    continuing_ids: Sequence[int] = ()
    rows: list[Row] = field(init=False)

    def __post_init__(self) -> None:
        self.rows = [
            Row(sequence, hypothesis, sequence.sequence.options.forced_id(len(hypothesis.tokens), self.eos_id))
            for sequence in self.running
            for hypothesis in sequence.live
        ]

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Places of the hypotheses in the model, int64 [R]."""
        return numbers_of(self.rows)

    @property
    def token_ids(self) -> NDArray[np.int64]:
        """The last token of each hypothesis, int64 [R]."""
        last = [row.hypothesis.tokens[-1:] for row in self.rows]
        return np.array([tokens[0].token_id if tokens else self.bos_id for tokens in last], np.int64)

    @property
    def positions(self) -> NDArray[np.int32]:
        """The number of tokens of each hypothesis, int32 [R]."""
        return np.array([len(row.hypothesis.tokens) for row in self.rows], np.int32)

    @property
    def source_lengths(self) -> NDArray[np.int32]:
        """The source tokens of each hypothesis, int32 [R]."""
        return np.array([row.running.source_tokens for row in self.rows], np.int32)

    @property
    def scored(self) -> NDArray[np.int64]:
        """The rows of which the search needs all logits, int64 [M]."""
        return numbers_of([row for row in self.rows if row.forced_id is not None or row.changed or row.drawn])

    @property
    def best_count(self) -> int:
        """The most best tokens that any search examines."""
        return max(row.options.examined for row in self.rows)

    @property
    def attended(self) -> bool:
        """Whether any sequence keeps attention."""
        return any(row.options.attended for row in self.rows)

    def advance(self, scores: Scores, alignments: NDArray[np.float32] | None) -> list[Branch]:
        """Extends or finishes every hypothesis; returns the states to copy before the next step.

        Args:
            scores: of the next tokens; constraints change them.
            alignments: of all rows of the model, float32 [slots, A, S]; None if no sequence keeps attention.
        """
        tokens = self._tokens(scores)
        branches = []
        for sequence in self.running:
            choices = [Choice(tokens[live.row], attention_of(sequence, live.row, alignments)) for live in sequence.live]
            branches += sequence.advance(choices, self.eos_id)
        return branches

    def _tokens(self, scores: Scores) -> dict[int, list[Token]]:
        """Returns the tokens of each row that its search examines, best first."""
        self._constrain(scores)
        chosen = self._drawn(scores) | {
            row.hypothesis.row: row.forced_id for row in self.rows if row.forced_id is not None
        }
        starting = [row.hypothesis.row for row in self.rows if row.starting]
        ids = np.array(list(chosen), np.int64)
        chosen_scores = scores.of(ids, np.array(list(chosen.values()), np.int64)).tolist() if chosen else []
        tokens = {
            number: [Token(token_id, score)]
            for (number, token_id), score in zip(chosen.items(), chosen_scores, strict=True)
        } | {number: [Token(chosen[number], 0.0)] for number in starting}
        searched = [row for row in self.rows if row.hypothesis.row not in chosen]
        if searched:
            best_scores, best_ids = scores.best(numbers_of(searched), max(row.options.examined for row in searched))
            for row, row_ids, row_scores in zip(searched, best_ids.tolist(), best_scores.tolist(), strict=True):
                best = list(map(Token, row_ids, row_scores))
                tokens[row.hypothesis.row] = best[: row.options.examined]
        return tokens

    def _constrain(self, scores: Scores) -> None:
        rows = [row for row in self.rows if row.changed]
        if rows:
            numbers = numbers_of(rows)
            logits = scores.fetch(numbers)  # [M, V]
            for row, row_logits in zip(rows, logits, strict=True):
                if row.running.candidates is not None:
                    keep(row_logits, row.running.candidates)
                if row.constrained:
                    constrain(row_logits, row.hypothesis.target_ids, row.options, self.eos_id, self.continuing_ids)
            scores.store(numbers, logits)

    def _drawn(self, scores: Scores) -> dict[int, int]:
        """Returns the sampled token of each row that has one."""
        rows = [row for row in self.rows if row.drawn]
        if not rows:
            return {}
        drawn = {}
        for row, logits in zip(rows, scores.fetch(numbers_of(rows)), strict=True):
            options, hypothesis = row.options, row.hypothesis
            position = len(hypothesis.tokens)
            number = float(uniforms(options.seed, hypothesis.number, position + 1)[position])
            drawn[hypothesis.row] = draw(logits, options.temperature, options.top_k, options.top_p, number)
        return drawn


def numbers_of(rows: Sequence[Row]) -> NDArray[np.int64]:
    """Returns the rows of hypotheses in the model, int64 [M]."""
    return np.array([row.hypothesis.row for row in rows], np.int64)


def attention_of(running: RunningSequence, row: int, alignments: NDArray[np.float32] | None) -> Attention | None:
    """Returns the mean of a row's alignment heads, float32 [S]; None if its sequence does not keep attention."""
    if alignments is None or not running.sequence.options.attended:
        return None
    mean: Attention = alignments[row, :, : running.source_tokens].mean(axis=0)
    return mean
