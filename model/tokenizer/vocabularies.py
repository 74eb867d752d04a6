"""What the tokenizers of imported models share: a vocabulary per side, which maps units of text to ids."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import compress, count


class VocabularyTokenizer(ABC):
    """Vocabularies of both sides, with pieces in the order of their ids. Thread-safe.

    `unknown_piece` replaces pieces missing from a vocabulary. `special_pieces` are never produced from text, so that
    input cannot end a sentence or switch the language; translations omit them.
    """

    def __init__(
        self,
        source_pieces: Sequence[str],
        target_pieces: Sequence[str],
        *,
        unknown_piece: str,
        special_pieces: Sequence[str],
    ) -> None:
        self.source_pieces = tuple(source_pieces)
        self.target_pieces = tuple(target_pieces)
        self.unknown_piece = unknown_piece
        self.special_pieces = tuple(special_pieces)
        special = frozenset(special_pieces)
        # A loop over the pieces would hold the lock of the interpreter several times as long.
        self._ids = dict(zip(self.source_pieces, count()))
        shared = self.source_pieces == self.target_pieces
        self._target_ids = self._ids if shared else dict(zip(self.target_pieces, count()))
        for piece in special:
            self._ids.pop(piece, None)
            self._target_ids.pop(piece, None)
        self._vanishing = frozenset(compress(count(), map(special.__contains__, self.target_pieces)))

    @abstractmethod
    def source_units(self, text: str) -> list[str]:
        """Returns the units of a source as written in its vocabulary."""

    @abstractmethod
    def target_units(self, text: str) -> list[str]:
        """Returns the units of a translation as written in its vocabulary."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of target ids; special pieces are removed, the unknown one stays visible."""

    @property
    def unk_id(self) -> int:
        """The id of pieces missing from the source vocabulary."""
        return self._ids[self.unknown_piece]

    @property
    def target_unk_id(self) -> int:
        """The id of pieces missing from the target vocabulary."""
        return self._target_ids[self.unknown_piece]

    def encode(self, text: str) -> list[int]:
        """Returns the ids of one source text, without special tokens; unknown pieces become `unk_id`."""
        return [self._ids.get(piece, self.unk_id) for piece in self.source_units(text)]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each source text."""
        return [self.encode(text) for text in texts]

    def encode_target(self, text: str) -> list[int]:
        """Returns the ids of one translation, without special tokens; unknown pieces become `target_unk_id`."""
        return [self._target_ids.get(piece, self.target_unk_id) for piece in self.target_units(text)]

    def decode_all(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Returns the text of each sequence of target ids."""
        return [self.decode(ids) for ids in sequences]
