"""A running sequence: its rows in the model, and the hypotheses that it extends and finishes; batches of them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.bundle.manifest import Manifest
from dragoman.serve.bundle.shortlist import Shortlist, max_candidates
from dragoman.serve.errors import InternalError
from dragoman.serve.scheduler.sequence import DecodingSequence
from dragoman.serve.search import beam
from dragoman.serve.search.beam import Branch
from dragoman.serve.search.hypothesis import Hypothesis
from dragoman.serve.search.live import Attention, LiveHypothesis, Token
from dragoman.serve.search.patience import enough_hypotheses

# The most padding of an encoder batch in tokens: about what a further run of the encoder costs.
PADDING_TOKENS = 16


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
        rows: its rows of the state until it is over, as many as its hypotheses may become.
        candidates: the tokens that it may use, int32 [ids]; None: all.
        live: the hypotheses that go on: those of a beam, best first, or those of the samples.
        finished: the other ones, in the order of their ends.
    """

    sequence: DecodingSequence
    rows: list[int]
    candidates: NDArray[np.int32] | None = None
    live: list[LiveHypothesis] = field(init=False)
    finished: list[Hypothesis] = field(default_factory=list)

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
        if len(self.finished) >= enough_hypotheses(options.patience, size):
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
        self.finished += [hypothesis.finished(options, self.source_tokens, eos_id) for hypothesis in hypotheses]


def candidates_of(sequence: DecodingSequence, table: Shortlist | None, manifest: Manifest) -> NDArray[np.int32] | None:
    """Returns the tokens that a sequence may use, which depend on it alone, int32 [ids]; None: all.

    Raises InternalError if the sequence needs a shortlist, and the model has none.
    """
    options = sequence.options
    if not options.shortlist:
        return None
    if table is None:
        raise InternalError("shortlist: the model has none")
    further = (*options.candidate_ids, *options.target_prefix, manifest.eos_id)
    candidates = table.candidates(sequence.source_ids, further)
    return candidates if len(candidates) <= max_candidates(manifest.vocabulary_size, options.rows) else None


def batches(starting: Iterable[RunningSequence]) -> list[list[RunningSequence]]:
    """Splits sequences into batches of at most `PADDING_TOKENS` tokens of padding, the longest sources first."""
    split: list[list[RunningSequence]] = []
    padding = 0
    for running in sorted(starting, key=lambda item: -item.source_tokens):
        if split:
            padding += split[-1][0].source_tokens - running.source_tokens
        if not split or padding > PADDING_TOKENS:
            split.append([])
            padding = 0
        split[-1].append(running)
    return split


def pad(sources: Sequence[tuple[int, ...]], pad_id: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Pads B sources on the right to the length of the longest, S.

    Returns:
        source ids, int64 [B, S], and source lengths, int32 [B].
    """
    source_lengths = np.array([len(source) for source in sources], np.int32)
    source_ids = np.full((len(sources), int(source_lengths.max())), pad_id, np.int64)
    for row, source in enumerate(sources):
        source_ids[row, : len(source)] = source
    return source_ids, source_lengths
