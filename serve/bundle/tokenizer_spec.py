"""The tokenizers that `manifest.json` describes."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, StringConstraints

from dragoman.serve.bundle.record import FileName, Record

Piece = Annotated[str, StringConstraints(max_length=1024)]


class SentencePieceSpec(Record):
    """A tokenizer whose ids are those of a SentencePiece model, the file `model`."""

    kind: Literal["sentencepiece"] = "sentencepiece"
    model: FileName

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the tokenizer's files."""
        return (self.model,)


class PieceSpec(Record):
    """A tokenizer that splits text with SentencePiece models and numbers the pieces by a vocabulary.

    Source and target may share a model or a vocabulary.

    Attributes:
        source_model: file of the SentencePiece model of sources.
        target_model: file of the SentencePiece model of translations.
        source_vocabulary: JSON list of the pieces of sources, in the order of their ids.
        target_vocabulary: JSON list of the pieces of translations.
        unknown_piece: replaces pieces that the source vocabulary lacks.
        special_pieces: pieces that no text contains and that are removed from translations.
    """

    kind: Literal["pieces"] = "pieces"
    source_model: FileName
    target_model: FileName
    source_vocabulary: FileName
    target_vocabulary: FileName
    unknown_piece: Piece
    special_pieces: tuple[Piece, ...] = Field(max_length=10_000)

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the tokenizer's files."""
        return (self.source_model, self.target_model, self.source_vocabulary, self.target_vocabulary)


class WordSpec(Record):
    """A tokenizer that cuts text into words by Moses' rules, and words by merges of byte pair encoding.

    Attributes:
        merges: file of merges, in the format of subword-nmt.
        source_language: language of the rules for sources.
        target_language: language of the rules for translations.
        source_vocabulary: JSON list of the pieces of sources, in the order of their ids.
        target_vocabulary: JSON list of the pieces of translations.
        unknown_piece: replaces pieces that a vocabulary lacks.
        special_pieces: pieces that no text contains and that are removed from translations.
    """

    kind: Literal["words"] = "words"
    merges: FileName
    source_language: Piece
    target_language: Piece
    source_vocabulary: FileName
    target_vocabulary: FileName
    unknown_piece: Piece
    special_pieces: tuple[Piece, ...] = Field(max_length=10_000)

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the tokenizer's files."""
        return (self.merges, self.source_vocabulary, self.target_vocabulary)


TokenizerSpec = Annotated[SentencePieceSpec | PieceSpec | WordSpec, Discriminator("kind")]
