"""Records of bytes between Python and the native loop.

Every record starts at a multiple of 8 bytes with a header of fixed size, followed by its arrays. `SUBMISSION_RECORD`
defines the header of a submission, which `make tables` writes as serve/native/src/loop/submission_record.hpp. The
records that come back are those of serve/native/src/loop/records.hpp.
"""

import math
from array import array
from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from struct import Struct, calcsize
from typing import NamedTuple

import numpy as np

from dragoman.serve.scheduler.sequence import DecodingSequence, SequenceGroup, SequenceState
from dragoman.serve.search.hypothesis import FinishReason, Hypothesis
from dragoman.serve.search.option_table import ROWS, NativeType
from dragoman.serve.search.options import SearchOptions

_HEADER = Struct("=IIQ")
_END = Struct("=ddddqI4x")
_RESULT = Struct("=ddIIII")
_TOKEN = Struct("=q")
_TOKEN_KIND, _END_KIND, _PROBLEM_KIND = range(3)
_CANCELLED, _FORCED_END, _NEW_WORD, _TOGETHER, _SHORTLIST = 1, 2, 4, 8, 16
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
            "candidate_tokens": "uint32_t",
            "start_tokens": "uint32_t",  # first forced tokens
            "flags": "uint32_t",  # 1: canceled; 2: forced end token; 4: then a new word; 8: together; 16: shortlist
        }
    ),
}
_FORMATS = {name: layout.format for name, layout in SUBMISSION_RECORD.items()}
# A record in parts: only ticket, length and tokens of the source differ between most sequences of a submission.
_TICKET, _SOURCE_TOKENS = Struct(f"={_FORMATS['Submission'][0]}"), Struct(f"={_FORMATS['ArrayHeader'][0]}")
_GROUP, _NUMBERS = Struct(f"={_FORMATS['Submission'][1:]}"), Struct(f"={_FORMATS['SearchNumbers']}")
_LENGTHS = Struct(f"={_FORMATS['ArrayHeader'][1:]}")
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


class Results(NamedTuple):
    """What the loop reports.

    Attributes:
        tokens: newest tokens of streamed sequences, which come before the end of their sequences.
        ended: sequences with their results; `Failure.NONE`: they have translations.
        problems: failures of engines, for the log: event, message, and the sequences or rows that each ends.
    """

    tokens: list[tuple[DecodingSequence, int]]
    ended: list[tuple[DecodingSequence, Failure]]
    problems: list[tuple[str, str, int]]


def pack(sequences: Iterable[DecodingSequence]) -> bytes:
    """Returns the records of sequences to submit; the ticket of each is its identity."""
    parts: list[bytes] = []
    known: tuple[SequenceGroup, SearchOptions, bool, bool] | None = None
    ticket, source_tokens = _TICKET.pack, _SOURCE_TOKENS.pack
    for sequence in sequences:
        source_ids = sequence.source_ids
        # Most sequences that are submitted together have all but their sources in common.
        common = sequence.group, sequence.options, sequence.on_token is not None, sequence.cancelled
        if common != known:
            known, (numbers, lengths, more_ids) = common, _pack_common(*common)
        parts += (
            ticket(id(sequence)),
            numbers,
            source_tokens(len(source_ids)),
            lengths,
            array("q", source_ids).tobytes(),
        )
        if more_ids:
            parts.append(more_ids)
    return b"".join(parts)


def _pack_common(
    group: SequenceGroup, options: SearchOptions, streamed: bool, cancelled: bool
) -> tuple[bytes, bytes, bytes]:
    """Returns what a record has after its ticket, after the length of its source, and after its source."""
    numbers, counts, flags, more_ids = _pack_options(options)
    shared = _GROUP.pack(
        id(group.fairness_key),
        math.inf if group.deadline_seconds is None else group.deadline_seconds,
        math.inf if group.start_by_seconds is None else group.start_by_seconds,
        group.submitted_seconds,
        group.priority,
        streamed,
    )
    lengths = _LENGTHS.pack(*counts, flags + _CANCELLED * cancelled + _TOGETHER * group.together)
    return shared + numbers, lengths, more_ids


@lru_cache(64)
def _pack_options(options: SearchOptions) -> tuple[bytes, tuple[int, int, int, int], int, bytes]:
    """Returns the numbers of the search, the numbers of further tokens, the flags, and those tokens."""
    lists = options.suppressed_ids, options.target_prefix, options.candidate_ids
    suppressed, forced, candidates = map(len, lists)
    flags = _FORCED_END * options.forced_end + _NEW_WORD * options.new_word + _SHORTLIST * options.shortlist
    more_ids = array("q", chain(*lists)).tobytes()
    counts = suppressed, forced, candidates, options.start_tokens
    return _NUMBERS.pack(*_search_numbers_of(options)), counts, flags, more_ids


def unpack(data: bytes, sequences: dict[int, DecodingSequence]) -> Results:
    """Returns the records of the loop, and removes what ended from the sequences, which are by ticket."""
    results = Results([], [], [])
    position = 0
    while position < len(data):
        kind, count, ticket = _HEADER.unpack_from(data, position)
        position += _HEADER.size
        if kind == _END_KIND:
            sequence = sequences.pop(ticket)
            started_seconds, encoded_seconds, first_seconds, finished_seconds, tokens, failure = _END.unpack_from(
                data, position
            )
            if started_seconds >= 0:  # below 0: not reached
                sequence.state, sequence.started_seconds = SequenceState.RUNNING, started_seconds
            sequence.encoded_seconds, sequence.first_token_seconds = encoded_seconds, first_seconds
            sequence.finished_seconds, sequence.decoded_tokens = finished_seconds, tokens
            sequence.hypotheses, position = _unpack_hypotheses(data, position + _END.size, count)
            results.ended.append((sequence, _FAILURES[failure]))
        elif kind == _TOKEN_KIND:
            if ticket in sequences:  # an abandoned engine may report tokens of a sequence that has ended
                results.tokens.append((sequences[ticket], *_TOKEN.unpack_from(data, position)))
            position += _TOKEN.size
        else:
            event, message = data[position : position + count].decode(errors="replace").split("\n", 1)
            results.problems.append((event, message, ticket))
            position += count + 7 & -8
    return results


def _unpack_hypotheses(data: bytes, position: int, count: int) -> tuple[tuple[Hypothesis, ...], int]:
    """Returns the hypotheses at a position, and the position after them."""
    hypotheses = []
    for _ in range(count):
        score, normalized_score, reason, target_tokens, token_scores, aligned_tokens = _RESULT.unpack_from(
            data, position
        )
        layout = _tokens(target_tokens, token_scores)
        numbers = layout.unpack_from(data, position + _RESULT.size)
        position += _RESULT.size + layout.size
        alignments = None
        if aligned_tokens:
            weights = np.frombuffer(data, np.float32, target_tokens * aligned_tokens, position)
            alignments = weights.reshape(target_tokens, aligned_tokens).copy()
            position += weights.nbytes + 7 & -8
        target_ids, scores = numbers[:target_tokens], numbers[target_tokens:]
        hypotheses.append(Hypothesis(target_ids, score, normalized_score, _REASONS[reason], scores, alignments))
    return tuple(hypotheses), position


@lru_cache(1024)
def _tokens(target_tokens: int, token_scores: int) -> Struct:
    """Returns the layout of tokens and scores, which ends at a multiple of 8 bytes."""
    return Struct(f"={target_tokens}q{token_scores}f{4 * (token_scores % 2)}x")
