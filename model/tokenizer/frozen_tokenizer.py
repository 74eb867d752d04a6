"""The tokenizer of a run that trains an imported model further: vocabularies and special tokens of the import stay."""

from collections.abc import Sequence
from typing import Any

from pydantic import Base64Bytes, ValidationError

from dragoman.model.config import Direction, Section
from dragoman.model.errors import first_problem
from dragoman.model.tokenizer.piece_tokenizer import PieceTokenizer
from dragoman.model.tokenizer.tokenizer import Frame, SpecialIds, Tokenizer, TokenizerError


class FramedDirection(Direction):
    """A direction with the ids before its sources, and those at the start of its translations."""

    source_prefix: tuple[int, ...] = ()
    start: tuple[int, ...] = ()


class FrozenTokens(Section):
    """What a run stores of an imported tokenizer, of its network, and of the import what only an export reads."""

    source_model: Base64Bytes
    target_model: Base64Bytes
    source_pieces: tuple[str, ...]
    target_pieces: tuple[str, ...]
    unknown_piece: str
    special_pieces: tuple[str, ...]
    special: SpecialIds
    source_suffix: tuple[int, ...]
    vocabulary_size: int
    directions: tuple[FramedDirection, ...]
    imported: dict[str, Any]


class FrozenTokenizer(PieceTokenizer):
    """An imported tokenizer with what training needs of a `Tokenizer`; `model` is the content of its file."""

    def __init__(self, model: bytes) -> None:
        """Raises TokenizerError if the content is damaged."""
        try:
            self.tokens = tokens = FrozenTokens.model_validate_json(model)
        except ValidationError as error:
            raise TokenizerError(f"not the tokenizer of an imported model: {first_problem(error)}") from error
        self.model, self.special, self.source_suffix = model, tokens.special, tokens.source_suffix
        self.vocabulary_size = tokens.vocabulary_size
        super().__init__(
            tokens.source_model,
            tokens.target_model,
            tokens.source_pieces,
            tokens.target_pieces,
            unknown_piece=tokens.unknown_piece,
            special_pieces=tokens.special_pieces,
        )

    def encode_lines(self, lines: Sequence[str]) -> list[list[int]]:
        """Returns the ids of many sources."""
        return self.encode_all(lines)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Returns the tokens of a translation as written in its vocabulary."""
        return [self.target_pieces[number] for number in ids]

    def frame(self, _directions: Sequence[Direction], direction: Direction) -> Frame:
        """Returns the tokens around texts of a direction; raises ValueError if the run lacks it."""
        for known in self.tokens.directions:
            if str(known) == str(direction):
                return Frame(known.source_prefix, known.start)
        raise ValueError(
            f"does not translate {direction}, expected one of {', '.join(map(str, self.tokens.directions))}"
        )


RunTokenizer = Tokenizer | FrozenTokenizer
