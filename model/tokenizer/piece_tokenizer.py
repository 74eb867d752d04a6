"""The tokenizer of imported models: SentencePiece cuts text into pieces, and a vocabulary maps them to ids.

Marian, OpenNMT and fairseq models keep the two apart and often have one SentencePiece model per language. Imports no
torch.
"""

from collections.abc import Collection, Sequence

import sentencepiece

from dragoman.model.tokenizer.tokenizer import WORD_START, Offsets, TokenizerError, offsets_of, open_processor


class PieceTokenizer:
    """SentencePiece models and vocabularies of both sides. Thread-safe.

    Pieces are in the order of their ids. `unknown_piece` replaces pieces missing from a vocabulary. `special_pieces`
    are never produced from text, so that input cannot end a sentence or switch the language; translations omit them.
    """

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
        self.source_pieces = tuple(source_pieces)
        self.target_pieces = tuple(target_pieces)
        self.unknown_piece = unknown_piece
        self.special_pieces = tuple(special_pieces)
        self._source = _processor("source", source_model)
        self._target = _processor("target", target_model)
        special = frozenset(special_pieces)
        if unknown_piece in special:
            raise TokenizerError(f"unknown_piece: expected a piece that is not special, got {unknown_piece}")
        self._ids = _text_ids("source", self.source_pieces, special, unknown_piece)
        self._target_ids = _text_ids("target", self.target_pieces, special, unknown_piece)
        self._vanishing = frozenset(number for number, piece in enumerate(self.target_pieces) if piece in special)

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
        return [self._ids.get(piece, self.unk_id) for piece in self._source.encode(text, out_type=str)]

    def encode_target(self, text: str) -> list[int]:
        """Returns the ids of one translation, without special tokens; unknown pieces become `target_unk_id`."""
        return [self._target_ids.get(piece, self.target_unk_id) for piece in self._target.encode(text, out_type=str)]

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


def _text_ids(side: str, pieces: Sequence[str], special: Collection[str], unknown_piece: str) -> dict[str, int]:
    """Returns the ids of the pieces that can come from text, including the unknown one."""
    if unknown_piece not in pieces:
        raise TokenizerError(f"the {side} vocabulary has no piece {unknown_piece}, which replaces unknown pieces")
    return {piece: number for number, piece in enumerate(pieces) if piece not in special}


def _processor(side: str, model: bytes) -> sentencepiece.SentencePieceProcessor:
    try:
        return open_processor(model)
    except TokenizerError as error:
        raise TokenizerError(f"{side}: {error}") from error
