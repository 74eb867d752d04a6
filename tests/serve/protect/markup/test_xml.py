"""XML is cut into tokens without loss, and what is malformed is refused with its position."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.protect.markup.tokens import MarkupError
from dragoman.serve.protect.markup.xml import scan_xml
from tests.support.cases import cases

CASES = cases(__file__)

PARTS = [
    *("<a>", "</a>", "<b c='>'>", "</b>", "<d/>", "<!-- < -->", "<?e f?>", "<![CDATA[<g>]]>", "text", "&lt;", "é"),
    *("&", "<", "]]>"),
]


@given(st.lists(st.sampled_from(PARTS), max_size=12).map("".join))
def test_every_character_belongs_to_one_token_or_the_text_is_refused_inside_of_it(text: str) -> None:
    try:
        tokens = scan_xml(text)
    except MarkupError as error:
        assert 0 <= error.position <= len(text)  # noqa: PT017 - either outcome is right
    else:
        assert "".join(text[token.start : token.end] for token in tokens) == text


@pytest.mark.parametrize(("text", "kinds"), CASES["documents and the content of elements are read"])
def test_documents_and_the_content_of_elements_are_read(text: str, kinds: str) -> None:
    assert " ".join(token.kind.name for token in scan_xml(text)) == kinds


@pytest.mark.parametrize(("text", "position", "problem"), CASES["malformed xml is refused with its position"])
def test_malformed_xml_is_refused_with_its_position(text: str, position: int, problem: str) -> None:
    with pytest.raises(MarkupError, match=problem) as refused:
        scan_xml(text)
    assert refused.value.position == position
