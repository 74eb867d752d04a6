"""HTML is cut into tokens as browsers do, without loss and in linear time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.protect.markup.html import read_translate, scan_html
from tests.support.markup import HOSTILE_HTML


def found(text: str) -> list[tuple[str, str, str]]:
    """Returns kind, name and characters of each token."""
    return [(token.kind.name, token.name, text[token.start : token.end]) for token in scan_html(text)]


@given(st.text() | HOSTILE_HTML)
def test_every_character_belongs_to_one_token(text: str) -> None:
    assert "".join(part for _, _, part in found(text)) == text


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a < b && c << d", "TEXT"),
        ("<svg><![CDATA[</svg>]]></svg>x", "START OTHER END TEXT"),
        ("<![CDATA[a>b]]>", "OTHER TEXT"),
        ("<svg><title><b></title></svg>", "START START START END END"),
        ("<svg/><title><b></title>", "EMPTY START TEXT END"),
        ("<math><mi><![CDATA[x>y]]></mi></math>", "START START OTHER TEXT END END"),
        ("<p/>x", "START TEXT"),
    ],
)
def test_foreign_elements_have_sections_of_characters_and_empty_tags(text: str, kinds: str) -> None:
    """CDATA sections end at the first `>` in HTML itself."""
    assert " ".join(kind for kind, _, _ in found(text)) == kinds


@pytest.mark.parametrize("comment", ["<!---->", "<!-->", "<!--->", "<!-- a -->", "<!--a--!>"])
def test_a_comment_ends_at_its_own_end(comment: str) -> None:
    """Also without content, or with fewer hyphens than a comment has."""
    assert found(f"{comment}x<!-- y -->") == [("OTHER", "", comment), ("TEXT", "", "x"), ("OTHER", "", "<!-- y -->")]


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        *((tag, False) for tag in ("<p translate=no>", "<P TRANSLATE='No'>", '<p class="a notranslate b">')),
        ('<p translate="yes" class=notranslate>', False),
        *((tag, True) for tag in ("<p translate>", '<p translate="yes" translate="no">')),
        *((tag, None) for tag in ("<p class=notranslated>", '<p title="translate=no">', "<translate>")),
        ("<p translate=maybe>", None),
    ],
)
def test_a_start_tag_states_whether_its_content_is_translated(tag: str, expected: bool | None) -> None:
    assert read_translate(tag) is expected
