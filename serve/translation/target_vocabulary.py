"""The tokens of translations as clients write them: pieces to ids, and ids to pieces.

Built once for each served model by `serve.registry.pipeline`. Knows neither text nor search.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class TargetVocabulary:
    """The pieces of the target side.

    Attributes:
        pieces: how tokens are written, in the order of their ids.
        ids: the token of each piece.
        unk_id: stands for pieces that the vocabulary lacks.
        eos_id: ends a translation.
    """

    pieces: Sequence[str]
    ids: Mapping[str, int]
    unk_id: int
    eos_id: int

    @classmethod
    def of(cls, pieces: Sequence[str], *, unk_id: int, eos_id: int) -> Self:
        """Returns the vocabulary of pieces that differ."""
        return cls(pieces, {piece: token_id for token_id, piece in enumerate(pieces)}, unk_id, eos_id)
