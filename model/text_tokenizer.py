"""What serving needs of a tokenizer, whichever it is: text to ids, and ids to text.

`model.tokenizer` is the one that Dragoman trains, `model.piece_tokenizer` that of models which others trained.
"""

from collections.abc import Sequence
from typing import Protocol


class TextTokenizer(Protocol):
    """Turns text into token ids and back. May be used by many threads at once."""

    def encode(self, text: str) -> list[int]:
        """Returns the ids of one source text, without special tokens."""

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of the ids of a translation; special tokens vanish."""
