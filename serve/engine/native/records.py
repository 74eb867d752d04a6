"""Records of bytes between Python and the native loop.

Every record starts at a multiple of 8 bytes with a header of fixed size, followed by its arrays. `SUBMISSION_RECORD`
defines the header of a submission, which `make tables` writes as serve/native/src/loop/submission_record.hpp. The
records that come back are those of serve/native/src/loop/records.hpp.
"""

import math
from array import array
from collections.abc import Iterator, Mapping
from enum import IntEnum
from functools import lru_cache
from operator import attrgetter
from struct import Struct, calcsize
from typing import Any, NamedTuple

import numpy as np

from dragoman.serve.scheduler.sequence import DecodingSequence
from dragoman.serve.search.hypothesis import FinishReason, Hypothesis
from dragoman.serve.search.option_table import ROWS, NativeType

_HEADER = Struct("=IIQ")
_END = Struct("=ddddqII")
_RESULT = Struct("=ddIIII")
_TOKEN = Struct("=q")
_TOKEN_KIND, _END_KIND, _PROBLEM_KIND = range(3)
_CANCELLED, _FORCED_END, _NEW_WORD = 1, 2, 4
_CODES: dict[NativeType, str] = {
    "double": "d",
    "float": "f",
    "int32_t": "i",
    "int64_t": "q",
    "uint32_t": "I",
    "uint64_t": "Q",
}
_REASONS = (FinishReason.EOS, FinishReason.LENGTH)


class Layout:
    """The fields of a C++ struct that has no gaps, and ends at a multiple of 8 bytes.

    Attributes:
        types: C++ type of each field.
        format: as in the module `struct`.
        offsets: of each field, in bytes.
        size: in bytes.
    """

    def __init__(self, types: Mapping[str, NativeType]) -> None:
        """Takes the fields in order; each starts at a multiple of its size."""
        codes = [_CODES[kind] for kind in types.values()]
        self.types = types
        self.offsets = {name: calcsize(f"={''.join(codes[:index])}") for index, name in enumerate(types)}
        end = calcsize(f"={''.join(codes)}")
        self.size = end + 7 & -8
        self.format = f"{''.join(codes)}{self.size - end}x"


def _search_numbers() -> Layout:
    types = {name: option.native for name, option in ROWS.items() if option.native}
    return Layout(dict(sorted(types.items(), key=lambda row: -calcsize(_CODES[row[1]]))))  # the widest first: no gaps


# What the scheduler must know of a sequence, the numbers that the search takes, and what describes the arrays.
SUBMISSION_RECORD = {
    "Submission": Layout(
        {
            "ticket": "uint64_t",  # names the sequence in the records that come back
            "fairness_key": "uint64_t",
            "deadline_seconds": "double",
            "start_by_seconds": "double",
            "submitted_seconds": "double",
            "priority": "int32_t",
            "streamed": "uint32_t",  # unless 0, each new token becomes a record at once
        }
    ),
    "SearchNumbers": _search_numbers(),
    "ArrayHeader": Layout(
        {
            "source_tokens": "uint32_t",
            "suppressed_tokens": "uint32_t",
            "forced_tokens": "uint32_t",
            "start_tokens": "uint32_t",  # first forced tokens
            "flags": "uint32_t",  # 1: canceled; 2: the end token follows the forced ones; 4: then a new word begins
        }
    ),
}
_SUBMISSION = Struct("=" + "".join(layout.format for layout in SUBMISSION_RECORD.values()))
_search_numbers_of = attrgetter(*SUBMISSION_RECORD["SearchNumbers"].types)


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
        *_search_numbers_of(options),
        len(sequence.source_ids),
        len(options.suppressed_ids),
        len(options.target_prefix),
        options.start_tokens,
        _CANCELLED * sequence.cancelled + _FORCED_END * options.forced_end + _NEW_WORD * options.new_word,
    )
    return header + array("q", (*sequence.source_ids, *options.suppressed_ids, *options.target_prefix)).tobytes()


def unpack(data: bytes) -> Iterator[Token | End | Problem]:
    """Yields the records of the loop."""
    reader = _RecordReader(data)
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


class _RecordReader:
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
