"""Fakes at the boundaries of the service: a model that is a pure function of source and target, and a clock.

The fake model keeps sources and targets per row, as a real model keeps keys and values: a row that is moved wrongly,
overwritten or never written gets another translation. `translate` returns the expected translation of one sequence,
computed alone and in the simplest way.
"""

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.bundle.manifest import (
    DECODER_INPUTS,
    ENCODER_INPUTS,
    LOGITS,
    AttentionHead,
    BundleDirection,
    GraphSignature,
    Manifest,
    Provenance,
    StateSpec,
)
from dragoman.serve.bundle.tokenizer_spec import SentencePieceSpec
from dragoman.serve.runtime.model import NO_ROWS
from dragoman.serve.search.hypothesis import FinishReason

PAD_ID, BOS_ID, EOS_ID = 0, 1, 2
FIRST_ID = 3
VOCABULARY = 13
# Tokens that continue a word.
CONTINUING_IDS = (4, 6, 7, 11)
# Source tokens that make the model fail for their row.
POISON_ID = 100
ENDLESS_ID = 101
STALE = -1
# Chosen so that the texts of the tests have short and long translations.
SALT = 91320
ONE_DIRECTION = (BundleDirection(source="en", target="de"),)


@dataclass
class FakeClock:
    """A clock that a test advances."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


DESCRIPTION = "sentences of tests"


def fake_manifest(
    max_target_tokens: int,
    *,
    vocabulary_size: int = VOCABULARY,
    max_source_tokens: int = 60,
    directions: tuple[BundleDirection, ...] = ONE_DIRECTION,
    alignment_heads: tuple[AttentionHead, ...] = (),
    files: dict[str, str] | None = None,
) -> Manifest:
    return Manifest(
        name="fake",
        description=DESCRIPTION,
        vocabulary_size=vocabulary_size,
        directions=directions,
        source_suffix=(EOS_ID,),
        tokenizer=SentencePieceSpec(model="tokenizer.model"),
        states=(StateSpec(name="annotations", shape=("source", 8)), StateSpec(name="hidden", shape=(8,))),
        alignment_heads=alignment_heads,
        pad_id=PAD_ID,
        unk_id=3,
        bos_id=BOS_ID,
        eos_id=EOS_ID,
        max_source_tokens=max_source_tokens,
        max_target_tokens=max_target_tokens,
        precision="fp32",
        opset=20,
        encoder=GraphSignature(inputs=ENCODER_INPUTS, outputs=("annotations", "hidden")),
        decoder=GraphSignature(
            inputs=(*DECODER_INPUTS, "annotations", "past_hidden"), outputs=(LOGITS, "present_hidden")
        ),
        files=files or {},
        provenance=Provenance(created="2026-01-01", versions={}, training={}, steps=1, scores={}),
    )


@dataclass
class FakeModel:
    """A model whose next token depends on all tokens of its row and on nothing else.

    Attributes:
        slots: number of rows.
        encode_error: raised by `encode` if set.
        decode_error: raised by `decode_step` if set.
        on_step: called in the middle of every decode step.
        prefills: (sequences, padded source tokens) of each prefill.
        steps: rows of each decode step.
        aligned: whether each decode step computed alignments.
    """

    slots: int
    capacity: int = 80
    encode_error: Exception | None = None
    decode_error: Exception | None = None
    on_step: Callable[[], None] = lambda: None
    prefills: list[tuple[int, int]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    aligned: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sources = np.full((self.slots, self.capacity), STALE, np.int64)
        self._targets = np.full((self.slots, self.capacity), STALE, np.int64)
        self._logits = np.zeros((self.slots, VOCABULARY), np.float32)
        self._alignments = np.zeros((self.slots, 1, self.capacity), np.float32)

    @property
    def alignments(self) -> NDArray[np.float32]:
        """One head, which attends by the last token."""
        return self._alignments

    def encode(
        self, source_ids: NDArray[np.int64], source_lengths: NDArray[np.int32], rows: Sequence[Sequence[int]]
    ) -> None:
        """Stores the sources; the previous content of the rows is lost."""
        assert source_ids.dtype == np.int64
        assert source_lengths.dtype == np.int32
        self.prefills.append((len(source_ids), source_ids.size))
        if self.encode_error is not None:
            raise self.encode_error
        for own_rows, ids, length in zip(rows, source_ids, source_lengths, strict=True):
            assert (ids[length:] == PAD_ID).all()
            for row in own_rows:
                self._sources[row] = self._targets[row] = STALE
                self._sources[row, :length] = ids[:length]

    def decode_step(
        self,
        rows: NDArray[np.int64],
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
        *,
        aligned: bool = False,
    ) -> NDArray[np.float32]:
        """Stores the last tokens and returns the next logits of all rows, in a buffer that the next call overwrites."""
        assert rows.dtype == np.int64
        assert token_ids.dtype == np.int64
        assert positions.dtype == source_lengths.dtype == np.int32
        self.steps.append(len(token_ids))
        self.aligned.append(aligned)
        self.on_step()
        if self.decode_error is not None:
            raise self.decode_error
        self._targets[np.setdiff1d(np.arange(self.slots), rows)] = STALE
        for row, token, position, length in zip(rows, token_ids, positions, source_lengths, strict=True):
            self._targets[row, position] = token
            self._logits[row] = next_logits(self._sources[row, :length], self._targets[row, : position + 1])
            self._alignments[row] = np.nan
            if aligned:
                self._alignments[row, 0, :length] = next_attention(length, self._targets[row, : position + 1])
        return self._logits

    def step(
        self,
        rows: NDArray[np.int64],
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
        *,
        scored_rows: NDArray[np.int64] = NO_ROWS,
        best_count: int = 1,
        aligned: bool = False,
    ) -> "FakeScores":
        """Computes the next logits; rows that are not scored have none."""
        logits = self.decode_step(rows, token_ids, positions, source_lengths, aligned=aligned)
        return FakeScores(logits, self, scored_rows, best_count)

    def log_probabilities(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        return logits - np.array([log_sum(row) for row in logits], np.float32)[:, np.newaxis]

    def best(self, scores: NDArray[np.float32], count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        token_ids = np.argsort(-scores, axis=1, kind="stable")[:, :count]
        return np.take_along_axis(scores, token_ids, axis=1), token_ids

    def branch_rows(self, sources: Sequence[int], targets: Sequence[int], positions: Sequence[int]) -> None:
        """Copies the targets of rows over other rows of the same source."""
        assert not set(sources) & set(targets)
        for source, target, count in zip(sources, targets, positions, strict=True):
            assert (self._sources[source] == self._sources[target]).all()
            self._targets[target] = STALE
            self._targets[target, :count] = self._targets[source, :count]


def log_sum(logits: NDArray[np.float32]) -> float:
    """Returns the natural logarithm of the sum of exp of logits, [V]; NaN if none is finite, or one is NaN or +inf.

    In this order and with these functions, the native fake gets the same bits.
    """
    highest = float(logits.max())
    if not math.isfinite(highest):
        return math.nan
    total = 0.0
    for logit in logits.tolist():
        total += math.exp(logit - highest)
    return math.log(total) + highest


class FakeScores:
    """The scores of a step, in memory; asserts that the search uses only what the step requested."""

    def __init__(
        self, logits: NDArray[np.float32], model: FakeModel, scored_rows: NDArray[np.int64], best_count: int
    ) -> None:
        self._logits = logits
        self._model = model
        self._scored_rows = scored_rows
        self._best_count = best_count

    def fetch(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        assert np.isin(rows, self._scored_rows).all()
        return self._logits[rows]

    def store(self, rows: NDArray[np.int64], logits: NDArray[np.float32]) -> None:
        assert np.isin(rows, self._scored_rows).all()
        self._logits[rows] = logits

    def of(self, rows: NDArray[np.int64], token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        assert np.isin(rows, self._scored_rows).all()
        return self._model.log_probabilities(self._logits[rows])[np.arange(len(rows)), token_ids]

    def best(self, rows: NDArray[np.int64], count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        assert count <= self._best_count
        log_probabilities = self._model.log_probabilities(self._logits[rows])
        return self._model.best(log_probabilities, min(count, log_probabilities.shape[1]))


class FiniteModel(FakeModel):
    """The fake model with a positive probability of every token, as of a real model: any token may be forced."""

    def decode_step(self, *arguments: Any, **options: Any) -> NDArray[np.float32]:
        logits = super().decode_step(*arguments, **options)
        return np.maximum(logits, np.float32(-20.0), out=logits)


def next_logits(source_ids: NDArray[np.int64], target_ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """Returns logits, float32 [V], pseudo-random numbers that depend on all tokens of the row.

    Each is about normal with a standard deviation of 2.3, as the sum of four uniform numbers.
    """
    if POISON_ID in source_ids and len(target_ids) > 2:  # fails after a few valid steps
        return np.full(VOCABULARY, np.nan, np.float32)
    seed = zlib.crc32(source_ids.tobytes(), zlib.crc32(target_ids.tobytes(), SALT))
    parts = random_numbers(seed, VOCABULARY).view(np.uint16).reshape(VOCABULARY, 4)
    sums = parts.sum(axis=1, dtype=np.int64) - 2 * 0xFFFF
    logits: NDArray[np.float32] = sums.astype(np.float32) * np.float32(2**-14)
    logits[[PAD_ID, BOS_ID]] = -np.inf
    if ENDLESS_ID in source_ids:
        logits[EOS_ID] = -np.inf
    return logits


def next_attention(source_length: int, target_ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """Returns attention weights, float32 [S], pseudo-random numbers that depend on the tokens so far."""
    numbers = random_numbers(zlib.crc32(target_ids.tobytes(), SALT), source_length)
    weights = (numbers >> np.uint64(48)).astype(np.float64) + 1
    return np.asarray(weights / weights.sum(), np.float32)


def random_numbers(seed: int, count: int) -> NDArray[np.uint64]:
    """Returns the first outputs of SplitMix64 (Steele, Lea and Flood 2014), which is simple in every language."""
    states = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    states = (states ^ (states >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    states = (states ^ (states >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return states ^ (states >> np.uint64(31))


def translate(source_ids: Sequence[int], max_target_tokens: int) -> tuple[tuple[int, ...], float, FinishReason]:
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
