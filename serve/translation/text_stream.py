"""The text of a translation as it grows, in pieces that never have to be taken back.

What a later token may still change is held back: bytes that are no whole character yet, and white space, which some
tokenizers drop at the end. Called by `serve.translation.translator`; knows neither sequences nor any protocol.
"""

from collections.abc import Sequence

from model.tokenizer.text_tokenizer import TextTokenizer

# What tokenizers write in the place of a byte that is no character by itself; the next byte may make it one.
INCOMPLETE = "\ufffd"


class TextStream:
    """One translation; its pieces make up its text."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        """Starts with no text.

        Args:
            tokenizer: turns ids into text from left to right: further tokens change no more than the end of it.
        """
        self._tokenizer = tokenizer
        self._sent_characters = 0

    def grow(self, target_ids: Sequence[int]) -> str:
        """Returns what is new and stays, given all tokens so far; it may be empty."""
        return self._advance(self._tokenizer.decode(target_ids).rstrip(INCOMPLETE).rstrip())

    def end(self, text: str) -> str:
        """Returns what is left of the whole text."""
        return self._advance(text)

    def _advance(self, text: str) -> str:
        new = text[self._sent_characters :]
        self._sent_characters += len(new)
        return new
