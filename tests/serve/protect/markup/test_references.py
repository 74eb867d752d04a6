"""Character references are read as browsers do, and text is escaped so that it stays text."""

from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.protect.markup.references import Escaper, find_references

PARTS = ["&", "#", "x", "amp", "lt", "not", "in", "copy", "eacute", ";", "1", "6", "0", " ", "<"]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)


def decoded(text: str, *, xml: bool = False) -> str:
    parts, position = "", 0
    for reference in find_references(text, 0, len(text), xml=xml):
        parts += text[position : reference.start] + ("\N{WHITE SQUARE}" if reference.value is None else reference.value)
        position = reference.end
    return parts + text[position:]


@given(TEXTS)
def test_references_of_html_are_those_of_the_standard_library(text: str) -> None:
    """Except that a character that does not exist is replaced instead of dropped."""
    assert decoded(text).replace("\ufffd", "") == unescape(text).replace("\ufffd", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("&lt;&amp;&#233;&#xE9;", "<&éé"), ("&copy;&name;", "©\N{WHITE SQUARE}"), ("&#0;&#xD800;", "\ufffd\ufffd")],
)
def test_entities_of_xml_that_no_html_names_are_not_expanded(text: str, expected: str) -> None:
    assert decoded(text, xml=True) == expected


def escape(document: str, text: str) -> str:
    references = list(find_references(document, 0, len(document), xml=False))
    return Escaper(document, references, decoded(document)).escape(text)


@given(st.text(), TEXTS)
def test_escaped_text_is_text_again_and_nothing_else(text: str, document: str) -> None:
    escaped = escape(document, text)
    assert unescape(escaped) == unescape(text.replace("&", "&amp;"))
    assert "<" not in escaped
    assert ">" not in escaped


def test_characters_stay_spelled_as_the_document_spells_them() -> None:
    document = "caf&eacute; &#8222; &nbsp; &#97;&#32; &quot; &copy 1 &#60;"
    assert escape(document, "é„\u00a0a \"©'<>") == "&eacute;&#8222;&nbsp;a &quot;©'&#60;&gt;"


def test_characters_that_the_document_also_writes_are_written() -> None:
    """Only `&`, `<` and `>` cannot be."""
    assert escape("caf&eacute;, thé &#38; < ", "é & <") == "é &#38; &lt;"
