"""Writes the JSON of answers: small ones at once, large ones in pieces between which the event loop runs.

A request for the scores of all tokens of many hypotheses takes a second to write, one for alignments several.
"""

from array import array
from collections.abc import Iterator
from dataclasses import fields
from typing import TypeVar

from pydantic import TypeAdapter
from pydantic_core import to_json

from dragoman.serve.protect.alignment import Alignment
from dragoman.serve.translation.attention import AttentionResponse, PairAttention
from dragoman.serve.translation.large_work import Pace
from dragoman.serve.translation.response import (
    Alternative,
    ScoreResponse,
    TargetError,
    TargetTranslations,
    TranslationResponse,
    TranslationScore,
)

AnyResponse = TypeVar("AnyResponse", TranslationResponse, ScoreResponse, AttentionResponse)

# Parts of a response that have pieces themselves.
_PARTS = Alternative | TargetError | TargetTranslations | TranslationScore | PairAttention | Alignment
# Token scores and weights of alignments; this many are written in about a millisecond.
LARGE_VALUES = 1000


async def write_json(response: AnyResponse, adapter: TypeAdapter[AnyResponse]) -> bytes:
    """Returns the JSON of a response, as the adapter writes it without None."""
    if count_values(response) <= LARGE_VALUES:
        return adapter.serializer.to_json(response, exclude_none=True)
    pieces, pace = list[bytes](), Pace()
    for piece in _pieces(response):
        pieces.append(piece)
        await pace.keep()
    return b"".join(pieces)


def _pieces(value: object) -> Iterator[bytes]:
    if isinstance(value, TranslationResponse | ScoreResponse | AttentionResponse | _PARTS):
        yield b"{"
        members = ((field.name, getattr(value, field.name)) for field in fields(value))
        for number, (name, member) in enumerate((name, member) for name, member in members if member is not None):
            yield b'%b"%b":' % (b"," if number else b"", name.encode())
            yield from _pieces(member)
        yield b"}"
    elif isinstance(value, tuple) and value and isinstance(value[0], tuple | array | _PARTS):
        for number, element in enumerate(value):
            yield b"," if number else b"["
            yield from _pieces(element)
        yield b"]"
    else:  # a row of an alignment, the scores of the tokens of one translation, or a single value
        yield to_json(value.tolist() if isinstance(value, array) else value, exclude_none=True)


def count_values(response: TranslationResponse | ScoreResponse | AttentionResponse) -> int:
    """Returns the number of token scores and weights of alignments."""
    if isinstance(response, AttentionResponse):
        return sum(_weights_of(attention.alignment) for attention in response.attentions)
    if isinstance(response, ScoreResponse):
        return sum(len(score.tokens) for score in response.scores)
    values = 0
    for target in response.targets or ():
        values += count_values(TranslationResponse(target.translations, response.timings))
    for best in response.translations:
        for alternative in (best, *best.alternatives):
            if alternative.tokens is not None or alternative.alignments is not None:
                values += len(alternative.tokens or ())
                values += sum(map(_weights_of, alternative.alignments or ()))
    return values


def _weights_of(alignment: Alignment) -> int:
    return len(alignment.target) * len(alignment.source)
