"""HTML documents: code stays, and so do elements that the request names."""

import pytest

from dragoman.serve.documents.document import DocumentRequest
from dragoman.serve.documents.formats import parse_document


def texts(page: str, *ignore_tags: str) -> list[str]:
    document = parse_document("a.html", page.encode(), DocumentRequest("en", "de", ignore_tags=ignore_tags))
    return [segment.text for segment in document.segments]


@pytest.mark.parametrize("name", ["code", "kbd", "samp", "var", "tt", "CODE"])
def test_code_is_kept_text(name: str) -> None:
    assert texts(f"<p>Use <{name}>git push</{name}> now.</p>") == ['Use <k id="1">git push</k> now.']
    assert texts(f"<p><{name}>git push</{name}></p>") == []


def test_elements_without_translation_stay() -> None:
    page = '<pre>a</pre><p translate="no">b</p><p class="x notranslate">c</p><p>d <b class=notranslate>e</b></p>'
    assert texts(page) == ['d <k id="1">e</k>']


def test_white_space_of_an_element_without_text_is_not_doubled() -> None:
    page = "<p><em>A</em><span> </span><strong>b</strong> c</p>"
    document = parse_document("a.html", page.encode(), DocumentRequest())
    (segment,) = document.segments
    written = document.write([segment.text.replace("c", "d")]).decode()
    assert written == "<p><em>A</em><span></span> <strong>b</strong> d</p>"


def test_elements_of_the_request_are_kept_text() -> None:
    page = "<p>A <b>bold</b> move</p><Aside>b</Aside>"
    assert texts(page) == ['A <g id="1">bold</g> move', "b"]
    assert texts(page, "B", "aside") == ['A <k id="1">bold</k> move']
