"""The tokenizer of imported models: SentencePiece cuts text into pieces, and a vocabulary maps them to ids.

Marian, OpenNMT and fairseq models keep the two apart and often have one SentencePiece model per language. Imports no
torch.
"""

from collections.abc import Sequence

import sentencepiece

from dragoman.model.tokenizer.tokenizer import WORD_START, Offsets, TokenizerError, offsets_of, open_processor
from dragoman.model.tokenizer.vocabularies import VocabularyTokenizer


class PieceTokenizer(VocabularyTokenizer):
    """SentencePiece models and vocabularies of both sides. Thread-safe."""

    def __init__(
        self,
        source_model: bytes,
        target_model: bytes,
        source_pieces: Sequence[str],
        target_pieces: Sequence[str],
        *,
        unknown_piece: str,
        special_pieces: Sequence[str],
    ) -> None:
        self.source_model = source_model
        self.target_model = target_model
        self._source = _processor("source", source_model)
        self._target = self._source if target_model == source_model else _processor("target", target_model)
        if unknown_piece in special_pieces:
            raise TokenizerError(f"unknown_piece: expected a piece that is not special, got {unknown_piece}")
        for side, pieces in (("source", source_pieces), ("target", target_pieces)):
            if unknown_piece not in pieces:
                raise TokenizerError(
                    f"the {side} vocabulary has no piece {unknown_piece}, which replaces unknown pieces"
                )
        super().__init__(source_pieces, target_pieces, unknown_piece=unknown_piece, special_pieces=special_pieces)

    def source_units(self, text: str) -> list[str]:
        """Returns the pieces of a source."""
        return list(self._source.encode(text, out_type=str))

    def target_units(self, text: str) -> list[str]:
        """Returns the pieces of a translation."""
        return list(self._target.encode(text, out_type=str))

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of target ids; special pieces are removed, the unknown one stays visible."""
        return _clean(str(self._target.decode_pieces(self._visible_pieces(ids)))).strip()

    def encode_offsets(self, text: str) -> Offsets:
        """Returns where each id of `encode` starts and ends in the text."""
        return offsets_of(self._source.encode(text, return_type="offset_mapping"))

    def decode_offsets(self, ids: Sequence[int]) -> Offsets:
        """Returns where each target id starts and ends in the text of `decode`."""
        decoded = self._target.decode(self._visible_pieces(ids), return_type="offset_mapping")
        text = _clean(decoded["text"])
        stripped, length = len(text) - len(text.lstrip()), len(text.strip())
        found = iter(offsets_of(decoded))
        offset = 0
        offsets = Offsets()
        for number in ids:
            start, end = (offset, offset) if number in self._vanishing else next(found)
            offset = end
            offsets.append((min(max(0, start - stripped), length), min(max(0, end - stripped), length)))
        return offsets

    def _visible_pieces(self, ids: Sequence[int]) -> list[str]:
        return [self.target_pieces[number] for number in ids if number not in self._vanishing]


def _clean(text: str) -> str:
    # SentencePiece returns a piece that is missing from its model as it is written.
    return text.replace(WORD_START, " ")


def _processor(side: str, model: bytes) -> sentencepiece.SentencePieceProcessor:
    try:
        return open_processor(model)
    except TokenizerError as error:
        raise TokenizerError(f"{side}: {error}") from error
