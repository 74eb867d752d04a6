"""Records of bytes between Python and the native loop; serve/native/src/loop/records.hpp has the same layouts.

Every record starts at a multiple of 8 bytes with a header of fixed size, followed by its arrays.
"""

import math
from array import array
from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from serve.scheduler.sequence import DecodingSequence
from serve.search.hypothesis import FinishReason, Hypothesis

_SUBMISSION = Struct("=QQdddiI Qqdddddf5iII 4I")
_HEADER = Struct("=IIQ")
_END = Struct("=ddddqII")
_RESULT = Struct("=ddIIII")
_TOKEN = Struct("=q")
_TOKEN_KIND, _END_KIND, _PROBLEM_KIND = range(3)
_CANCELLED, _FORCED_END, _NEW_WORD = 1, 2, 4
_REASONS = (FinishReason.EOS, FinishReason.LENGTH)


class Failure(IntEnum):
    """Why a sequence has no translation."""

    NONE = 0
    CANCELLED = 1
    DEADLINE = 2
    QUEUE_TIMEOUT = 3
    DRAINING = 4
    INTERNAL = 5
    INVALID_PROBABILITIES = 6


_FAILURES = tuple(Failure)


class Token(NamedTuple):
    """The newest token of a streamed sequence."""

    ticket: int
    token_id: int


class End(NamedTuple):
    """The end of a sequence; a start below 0 and other times of 0 mean not reached."""

    ticket: int
    failure: Failure
    started_seconds: float
    encoded_seconds: float
    first_token_seconds: float
    finished_seconds: float
    decoded_tokens: int
    hypotheses: list[Hypothesis]


class Problem(NamedTuple):
    """A failure of an engine, for the log: event, message, and the sequences or rows that it ends."""

    event: str
    message: str
    sequences: int


def pack(sequence: DecodingSequence, ticket: int, fairness_key: int) -> bytes:
    """Returns the record of a sequence to submit."""
    options = sequence.options
    header = _SUBMISSION.pack(
        ticket,
        fairness_key,
        math.inf if sequence.deadline_seconds is None else sequence.deadline_seconds,
        math.inf if sequence.start_by_seconds is None else sequence.start_by_seconds,
        sequence.submitted_seconds,
        sequence.priority,
        sequence.on_token is not None,
        options.seed,
        options.top_k,
        options.patience,
        options.length_penalty,
        options.coverage_penalty,
        options.temperature,
        options.top_p,
        options.repetition_penalty,
        options.max_target_tokens,
        options.min_target_tokens,
        options.beam_size,
        options.hypotheses,
        options.no_repeat_ngram_tokens,
        options.start_tokens,
        options.alignments,
        len(sequence.source_ids),
        len(options.suppressed_ids),
        len(options.target_prefix),
        _CANCELLED * sequence.cancelled + _FORCED_END * options.forced_end + _NEW_WORD * options.new_word,
    )
    return header + array("q", (*sequence.source_ids, *options.suppressed_ids, *options.target_prefix)).tobytes()


def unpack(data: bytes) -> Iterator[Token | End | Problem]:
    """Yields the records of the loop."""
    reader = _Reader(data)
    while reader.position < len(data):
        kind, count, ticket = reader.take(_HEADER)
        if kind == _TOKEN_KIND:
            yield Token(ticket, *reader.take(_TOKEN))
        elif kind == _END_KIND:
            started, encoded, first_token, finished, decoded_tokens, failure, _ = reader.take(_END)
            hypotheses = [reader.hypothesis() for _ in range(count)]
            yield End(ticket, _FAILURES[failure], started, encoded, first_token, finished, decoded_tokens, hypotheses)
        else:
            (text,) = reader.take(_bytes(count))
            event, message = text.decode(errors="replace").split("\n", 1)
            yield Problem(event, message, ticket)


@lru_cache(1024)
def _tokens(target_tokens: int, token_scores: int) -> Struct:
    return Struct(f"={target_tokens}q{token_scores}f")


def _bytes(size: int) -> Struct:
    return Struct(f"={size}s")


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def take(self, layout: Struct) -> tuple[Any, ...]:
        """Returns the next values; what follows them starts at a multiple of 8."""
        start, self.position = self.position, self.position + (layout.size + 7 & -8)
        return layout.unpack_from(self._data, start)

    def hypothesis(self) -> Hypothesis:
        score, normalized_score, reason, target_tokens, token_scores, aligned_tokens = self.take(_RESULT)
        numbers = self.take(_tokens(target_tokens, token_scores))
        alignments = None
        if aligned_tokens:
            (weights,) = self.take(_bytes(4 * target_tokens * aligned_tokens))
            alignments = np.frombuffer(weights, np.float32).reshape(target_tokens, aligned_tokens)
        return Hypothesis(
            target_ids=numbers[:target_tokens],
            score=score,
            normalized_score=normalized_score,
            finish_reason=_REASONS[reason],
            token_scores=numbers[target_tokens:],
            alignments=alignments,
        )
