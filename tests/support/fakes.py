"""Fakes at the seams of the service: a model that is a pure function of source and target, and a clock.

The fake model keeps sources and targets per row, as a real model keeps keys and values, and computes from what it kept:
a row that was moved wrongly, overwritten or never written gives another translation. `translate` is what the engine
must answer, computed for one sequence alone and in the most obvious way.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from serve.runtime.model import HostScores
from serve.search.hypothesis import FinishReason

PAD_ID, BOS_ID, EOS_ID = 0, 1, 2
FIRST_ID = 3
VOCABULARY = 13
# Source tokens that make the model misbehave for the row that holds them.
POISON_ID = 100
ENDLESS_ID = 101
STALE = -1


@dataclass
class FakeClock:
    """A clock that moves when a test says so."""

    seconds: float = 0.0

    def __call__(self) -> float:
        """Returns the time in seconds."""
        return self.seconds


@dataclass
class FakeModel:
    """An engine's model whose next token depends on everything that its row has seen, and on nothing else.

    Attributes:
        slots: the most rows of a step.
        prefetched: rows behind those.
        encode_error: raised by `encode` while it is set.
        decode_error: raised by `decode_step` while it is set.
        on_step: called in the middle of every decode step.
        prefills: (sequences, padded source tokens) of each prefill.
        steps: rows of each decode step.
    """

    slots: int
    capacity: int = 80
    prefetched: int = 0
    encode_error: Exception | None = None
    decode_error: Exception | None = None
    on_step: Callable[[], None] = lambda: None
    prefills: list[tuple[int, int]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sources = np.full((self.slots + self.prefetched, self.capacity), STALE, np.int64)
        self._targets = np.full((self.slots + self.prefetched, self.capacity), STALE, np.int64)
        self._logits = np.zeros((self.slots, VOCABULARY), np.float32)
        self._alignments = np.zeros((self.slots, 1, self.capacity), np.float32)

    @property
    def alignments(self) -> NDArray[np.float32]:
        """One head, which looks where the last token says."""
        return self._alignments

    def encode(self, source_ids: NDArray[np.int64], source_lengths: NDArray[np.int32], rows: NDArray[np.int64]) -> None:
        """Keeps the sources; what the rows held before is lost."""
        assert source_ids.dtype == np.int64
        assert source_lengths.dtype == np.int32
        self.prefills.append((len(source_ids), source_ids.size))
        if self.encode_error is not None:
            raise self.encode_error
        for row, ids, length in zip(rows.tolist(), source_ids, source_lengths, strict=True):
            assert row < self.slots + self.prefetched
            assert (ids[length:] == PAD_ID).all()
            self._forget(row)
            self._sources[row, :length] = ids[:length]

    def decode_step(
        self,
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
        *,
        occupied: int = 0,
    ) -> NDArray[np.float32]:
        """Keeps the last tokens and returns the next logits, in a buffer that the next call overwrites."""
        assert token_ids.dtype == np.int64
        assert positions.dtype == source_lengths.dtype == np.int32
        self.steps.append(len(token_ids))
        self.on_step()
        if self.decode_error is not None:
            raise self.decode_error
        for row in range(max(occupied, len(token_ids)), self.slots + self.prefetched):
            self._forget(row)
        for row, (token, position, length) in enumerate(zip(token_ids, positions, source_lengths, strict=True)):
            self._targets[row, position] = token
            self._logits[row] = next_logits(self._sources[row, :length], self._targets[row, : position + 1])
            self._alignments[row] = np.nan
            self._alignments[row, 0, :length] = next_attention(length, self._targets[row, : position + 1])
        return self._logits[: len(token_ids)]

    def prepare(self) -> None:
        """Has nothing to prepare."""

    def step(
        self,
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
        *,
        occupied: int = 0,
    ) -> HostScores:
        """Computes the next logits."""
        return HostScores(self.decode_step(token_ids, positions, source_lengths, occupied=occupied), self)

    def log_probabilities(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Computes the logarithm of softmax."""
        return log_softmax(logits)

    def best(self, scores: NDArray[np.float32], count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Sorts the tokens of each row."""
        token_ids = np.argsort(-scores, axis=1, kind="stable")[:, :count]
        return np.take_along_axis(scores, token_ids, axis=1), token_ids

    def branch_rows(self, sources: Sequence[int], targets: Sequence[int], positions: Sequence[int]) -> None:
        """Copies the targets of rows over those of others that have the same source."""
        assert not set(sources) & set(targets)
        for source, target, count in zip(sources, targets, positions, strict=True):
            assert (self._sources[source] == self._sources[target]).all()
            self._targets[target] = STALE
            self._targets[target, :count] = self._targets[source, :count]

    def copy_rows(
        self, sources: Sequence[int], targets: Sequence[int], positions: Sequence[int], source_lengths: Sequence[int]
    ) -> None:
        """Copies one row after the other."""
        assert not set(sources) & set(targets)
        for move in zip(sources, targets, positions, source_lengths, strict=True):
            self.copy_row(*move)

    def copy_row(self, source: int, target: int, positions: int, source_length: int) -> None:
        """Copies what a row keeps; the rest of the other row is lost."""
        assert source != target
        self._forget(target)
        self._sources[target, :source_length] = self._sources[source, :source_length]
        self._targets[target, :positions] = self._targets[source, :positions]

    def _forget(self, row: int) -> None:
        self._sources[row] = STALE
        self._targets[row] = STALE


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns natural log-probabilities, float32 [M, V]; NaN in a row without any."""
    with np.errstate(invalid="ignore"):
        shifted = logits - logits.max(axis=1, keepdims=True)
    log_probabilities: NDArray[np.float32] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return log_probabilities


class FiniteModel(FakeModel):
    """The fake model with a chance for every token: as upon a real one, any token may be forced upon it."""

    def decode_step(
        self,
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
        *,
        occupied: int = 0,
    ) -> NDArray[np.float32]:
        """Computes as the fake model does."""
        logits = super().decode_step(token_ids, positions, source_lengths, occupied=occupied)
        return np.maximum(logits, np.float32(-20.0), out=logits)


def next_logits(source_ids: NDArray[np.int64], target_ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """Returns logits, float32 [V], drawn from a generator that is seeded by everything the row has seen."""
    if POISON_ID in source_ids and len(target_ids) > 2:  # a few healthy steps first
        return np.full(VOCABULARY, np.nan, np.float32)
    seed = zlib.crc32(source_ids.tobytes(), zlib.crc32(target_ids.tobytes()))
    logits = np.random.default_rng(seed).normal(scale=2.0, size=VOCABULARY).astype(np.float32)
    logits[[PAD_ID, BOS_ID]] = -np.inf
    if ENDLESS_ID in source_ids:
        logits[EOS_ID] = -np.inf
    return logits


def next_attention(source_length: int, target_ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """Returns where a step looks, float32 [S], drawn from a generator that is seeded by the tokens so far."""
    weights = np.random.default_rng(zlib.crc32(target_ids.tobytes())).random(source_length)
    return np.asarray(weights / weights.sum(), np.float32)


def translate(source_ids: Sequence[int], max_target_tokens: int) -> tuple[tuple[int, ...], float, FinishReason]:
    """Returns target ids, score and finish reason of one source, translated alone."""
    target_ids = [BOS_ID]
    score = 0.0
    while len(target_ids) <= max_target_tokens:
        logits = next_logits(np.array(source_ids), np.array(target_ids)).astype(np.float64)
        token_id = int(logits.argmax())
        score += float(logits[token_id] - np.log(np.exp(logits).sum()))
        if token_id == EOS_ID:
            return tuple(target_ids[1:]), score, FinishReason.EOS
        target_ids.append(token_id)
    return tuple(target_ids[1:]), score, FinishReason.LENGTH
