"""Hostile documents take time and memory in proportion to their size, or are refused."""

import tracemalloc
from collections import deque
from collections.abc import Callable

import pytest

from dragoman.serve.protect.alignment import Alignment
from dragoman.serve.protect.markup.elements import MarkupFormat, MarkupOptions
from dragoman.serve.protect.markup.html import scan_html
from dragoman.serve.protect.markup.sentences import read_document
from dragoman.serve.protect.markup.tokens import MarkupError
from tests.support.attacks.growth import MAX_GROWTH, largest_growth
from tests.support.markup import same, split, translate_markup, whole

CHARACTERS = 5_000
# Each makes a document of about as many characters.
HOSTILE: dict[str, Callable[[int], str]] = {
    "opening brackets": lambda size: "<" * size,
    "tags without end": lambda size: "<a " * (size // 3),
    "quotes without end": lambda size: '<a b="' * (size // 6),
    "attributes": lambda size: f"<a {'b=c ' * (size // 4)}>d</a>",
    "attributes without end": lambda size: f"<a{' b=c' * (size // 4)}",
    "slashes": lambda size: f"<a {'/' * size}",
    "spaces": lambda size: f"<a b{' ' * size}",
    "spaces after translate": lambda size: f"<a translate{' ' * size}>b</a>",
    "comments without end": lambda size: "<!--" * (size // 4),
    "bogus comments": lambda size: "<!" * (size // 2),
    "sections": lambda size: "<![CDATA[" * (size // 9),
    "scripts": lambda size: f"<script>{'<!--<script>' * (size // 12)}",
    "ends of raw text": lambda size: f"<style>{'</styl' * (size // 6)}",
    "ends without starts": lambda size: "</b>" * (size // 4),
    "paragraphs": lambda size: "<p>a" * (size // 4),
    "points": lambda size: f"a {'<i></i>' * (size // 7)} b",
    "elements": lambda size: "<b>a</b> " * (size // 9),
    "glued elements": lambda size: "<i>a</i>" * (size // 9),
    "equal kept text": lambda size: "<b translate=no>a</b> " * (size // 22),
    "crossing": lambda size: "<b><i>a</b></i>" * (size // 15),
    "levels": lambda size: f"{'<b>' * 200}a{'</b>' * 200} b" * (size // 1500),
    "ampersands": lambda size: "&" * size,
    "references": lambda size: "&#x41;" * (size // 6),
    "names": lambda size: "&" + "a" * size,
    "numbers": lambda size: f"&#{'9' * size};",
    "kept text": lambda size: "<b translate=no>a. B</b> " * (size // 25),
    "blanks": lambda size: " \n" * (size // 2) + "a",
    "controls": lambda size: "\x01\x7f\u2028" * (size // 3),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_document_is_read_and_comes_back(name: str) -> None:
    assert largest_growth(HOSTILE[name], lambda text: deque(scan_html(text), 0)) <= MAX_GROWTH
    text = HOSTILE[name](CHARACTERS)
    assert len(translate_markup(text, MarkupOptions("html"))) <= 5 * len(text)


def test_a_document_takes_memory_in_proportion_to_its_size() -> None:
    text = HOSTILE["elements"](CHARACTERS)
    tracemalloc.start()
    read_document(text, MarkupOptions("html"), split)
    _, max_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert max_bytes < 1000 * len(text)


@pytest.mark.parametrize("markup_format", ["html", "xml"])
def test_null_characters_are_no_tags(markup_format: MarkupFormat) -> None:
    """The service refuses them before; a document must not depend on it."""
    try:
        assert translate_markup("a\0<b>\0</b>", MarkupOptions(markup_format)) == "a\0<b>\0</b>"
    except MarkupError as error:
        assert (markup_format, error.position) == ("xml", 1)  # noqa: PT017 - XML has no null characters


@pytest.mark.parametrize(
    "text",
    ["&lt;script&gt;a()&lt;/script&gt;", "&#60;img src=x&#62;", "&amp;lt;b&amp;gt;", "<b>&lt;/b&gt;</b>", "a &lt b"],
)
@pytest.mark.parametrize("markup_format", ["html", "xml"])
def test_text_never_becomes_a_tag(text: str, markup_format: MarkupFormat) -> None:
    """Not even if the model writes it."""

    def live(_: str) -> tuple[str, Alignment]:
        return same("<script>&lt;</script>&copy;")

    try:
        for translate in (same, live):
            translated = translate_markup(text, MarkupOptions(markup_format), translate)
            assert translated.count("<") == text.count("<")
    except MarkupError:
        assert markup_format == "xml"


def test_declared_entities_are_never_expanded() -> None:
    laughs = "".join(f"<!ENTITY l{n + 1} '{f'&l{n};' * 10}'>" for n in range(9))
    text = f"<!DOCTYPE a [<!ENTITY l0 'ha'>{laughs}]><a>&l9; b</a>"
    with pytest.raises(MarkupError, match="internal DTD subset, expected none"):
        translate_markup(text, MarkupOptions("xml"))
    assert len(translate_markup(text, MarkupOptions("html"))) < 2 * len(text)
    external = "<!DOCTYPE a SYSTEM 'file:///etc/passwd'><a>b &c; d &e; f</a>"
    assert translate_markup(external, MarkupOptions("xml")) == external


def test_a_tag_of_a_wrong_document_does_not_hide_text() -> None:
    """An element that does not end goes on to the end of the element around it, as in browsers."""
    document = read_document("<p>a <x>b</p>c", MarkupOptions("html", ignore_tags=frozenset(["x"])), whole)
    assert [sentence.text for sentence in document.sentences] == ["a b", "c"]
