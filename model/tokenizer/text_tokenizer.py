"""What serving needs of a tokenizer, whichever it is: text to ids, ids to text, and how target tokens are written.

`model.tokenizer.tokenizer` is the one that Dragoman trains, `model.tokenizer.piece_tokenizer` that of models which
others trained.
"""

from collections.abc import Sequence
from typing import Protocol


class TextTokenizer(Protocol):
    """Turns text into token ids and back. May be used by many threads at once."""

    @property
    def target_pieces(self) -> tuple[str, ...]:
        """How the tokens of translations are written, in the order of their ids."""

    @property
    def target_unk_id(self) -> int:
        """The id of what a translation holds in the place of a piece that the target vocabulary lacks."""

    def encode(self, text: str) -> list[int]:
        """Returns the ids of one source text, without special tokens."""

    def encode_target(self, text: str) -> list[int]:
        """Returns the ids of a translation or of its beginning, without special tokens."""

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of the ids of a translation; special tokens vanish."""
