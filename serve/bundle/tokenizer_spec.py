"""Which tokenizer a bundle has, and which of its files make it. `serve.bundle.tokenizer` reads and writes those."""

from typing import Annotated, Literal

from pydantic import Discriminator

from serve.bundle.record import FileName, Record


class SentencePieceSpec(Record):
    """A tokenizer whose ids are those of a SentencePiece model.

    Attributes:
        model: the file of the SentencePiece model.
    """

    kind: Literal["sentencepiece"] = "sentencepiece"
    model: FileName

    @property
    def files(self) -> tuple[str, ...]:
        """The files that make it."""
        return (self.model,)


class PieceSpec(Record):
    """A tokenizer that cuts text into pieces with SentencePiece models and numbers the pieces by a vocabulary.

    Attributes:
        source_model: the file of the SentencePiece model of sources.
        target_model: that of translations; it may be the same one.
        source_vocabulary: a JSON list of the pieces of sources, in the order of their ids.
        target_vocabulary: the same for translations; it may be the same one.
        unknown_piece: stands for pieces that the source vocabulary lacks.
        special_pieces: those that no text contains, and that vanish from a translation.
    """

    kind: Literal["pieces"] = "pieces"
    source_model: FileName
    target_model: FileName
    source_vocabulary: FileName
    target_vocabulary: FileName
    unknown_piece: str
    special_pieces: tuple[str, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """The files that make it."""
        return (self.source_model, self.target_model, self.source_vocabulary, self.target_vocabulary)


TokenizerSpec = Annotated[SentencePieceSpec | PieceSpec, Discriminator("kind")]
