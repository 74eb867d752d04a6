"""Decides whether a text is blank, without a visible character, or has something to translate: a letter."""

import re

# Unicode categories Cc, Cf, Zl, Zp and Zs, and two characters that SentencePiece reads as nothing: its own word start
# (U+2581) and the replacement character.
BLANK_CHARACTERS = (
    "\0- \x7f-\xa0\xad\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u1680\u180e\u2000-\u200f\u2028-\u202f"
    "\u205f-\u2064\u2066-\u206f\u2581\u3000\ufeff\ufff9-\ufffb\ufffd\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f"
)

_VISIBLE = re.compile(f"[^{BLANK_CHARACTERS}]")


def is_blank(text: str) -> bool:
    """Returns whether a text has only white space, control characters and zero-width characters."""
    return _VISIBLE.search(text) is None


def has_letter(text: str) -> bool:
    """Returns whether a text has a letter: numbers, prices, times, punctuation and emoji stay as they are."""
    return any(map(str.isalpha, text))
