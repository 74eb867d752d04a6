"""HTML is cut into tokens as browsers do, without loss and in linear time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.protect.markup.html import read_translate, scan_html
from tests.support.cases import cases
from tests.support.markup import HOSTILE_HTML

CASES = cases(__file__)


def found(text: str) -> list[tuple[str, str, str]]:
    return [(token.kind.name, token.name, text[token.start : token.end]) for token in scan_html(text)]


@given(st.text() | HOSTILE_HTML)
def test_every_character_belongs_to_one_token(text: str) -> None:
    assert "".join(part for _, _, part in found(text)) == text


@pytest.mark.parametrize(("text", "kinds"), CASES["foreign elements have sections of characters and empty tags"])
def test_foreign_elements_have_sections_of_characters_and_empty_tags(text: str, kinds: str) -> None:
    """CDATA sections end at the first `>` in HTML itself."""
    assert " ".join(kind for kind, _, _ in found(text)) == kinds


@pytest.mark.parametrize("comment", ["<!---->", "<!-->", "<!--->", "<!-- a -->", "<!--a--!>"])
def test_a_comment_ends_at_its_own_end(comment: str) -> None:
    """Also without content, or with fewer hyphens than a comment has."""
    assert found(f"{comment}x<!-- y -->") == [("OTHER", "", comment), ("TEXT", "", "x"), ("OTHER", "", "<!-- y -->")]


@pytest.mark.parametrize(("tag", "expected"), CASES["a start tag states whether its content is translated"])
def test_a_start_tag_states_whether_its_content_is_translated(tag: str, expected: bool | None) -> None:
    assert read_translate(tag) is expected
