"""A text without a visible character is blank."""

import sys
import unicodedata

import pytest

from dragoman.serve.translation.fields import is_blank

BLANK_CATEGORIES = {"Cc", "Cf", "Zl", "Zp", "Zs"}
# SentencePiece reads both as nothing.
UNREAD = {"\u2581", "\ufffd"}


def test_white_space_control_characters_and_format_characters_are_blank() -> None:
    """Unassigned characters may get one of these categories in a later version of Unicode."""
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        category = unicodedata.category(character)
        if category != "Cn":
            assert is_blank(character) == (category in BLANK_CATEGORIES or character in UNREAD), hex(code)


@pytest.mark.parametrize(
    ("text", "blank"), [("", True), (" \u200b\n", True), ("\u200ba\u200b", False), ("\u3164", False)]
)
def test_a_text_with_a_visible_character_is_not_blank(text: str, *, blank: bool) -> None:
    assert is_blank(text) == blank
