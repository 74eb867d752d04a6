"""HTML is read as by html5lib, which follows the standard of browsers: tags, their places, text and elements."""

import re
from collections.abc import Iterator

import html5lib
from html5lib._tokenizer import HTMLTokenizer
from html5lib.constants import tokenTypes
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.serve.protect.markup.elements import NONE, ROOT, MarkupOptions, build_tree
from dragoman.serve.protect.markup.html import ESCAPABLE_TEXT, RAW_TEXT, scan_html
from dragoman.serve.protect.markup.references import find_references
from dragoman.serve.protect.markup.tokens import Kind, Token
from tests.support.markup import HOSTILE_HTML

# End of a tag, its kind and its name; or text.
Part = tuple[int, str, str] | str

TAGS = {tokenTypes["StartTag"]: "start", tokenTypes["EndTag"]: "end"}
CHARACTERS = tokenTypes["Characters"], tokenTypes["SpaceCharacters"]


def scan_as_browsers(text: str) -> Iterator[Part]:
    """Yields the tags of html5lib's tokenizer and the characters between them."""
    tokenizer = HTMLTokenizer(text)
    states = dict.fromkeys(RAW_TEXT, tokenizer.rawtextState) | dict.fromkeys(ESCAPABLE_TEXT, tokenizer.rcdataState)
    states |= {"script": tokenizer.scriptDataState, "plaintext": tokenizer.plaintextState}
    for token in tokenizer:
        if token["type"] in TAGS:
            yield tokenizer.stream.chunkOffset, TAGS[token["type"]], token["name"]
            if token["type"] == tokenTypes["StartTag"]:
                # A parser chooses the state by the name.
                tokenizer.state = states.get(token["name"], tokenizer.state)
        elif token["type"] in CHARACTERS:
            yield str(token["data"])


def scan(text: str) -> Iterator[Part]:
    """Yields the tags of a document and the characters between them."""
    before: Token | None = None
    for token in scan_html(text):
        raw = before is not None and before.kind is Kind.START and before.name in RAW_TEXT
        # The end tag may be incomplete.
        raw = raw and not re.match(f"</{before and before.name}[\\s/>]", text[token.start :], re.IGNORECASE | re.ASCII)
        if token.kind is Kind.TEXT:
            yield decode(text, token.start, token.end)
        elif token.kind is not Kind.OTHER:
            yield token.end, "end" if token.kind is Kind.END else "start", token.name
        elif raw:
            yield text[token.start : token.end]
        before = token


def decode(text: str, start: int, end: int) -> str:
    """Returns a part of a document with its character references replaced."""
    parts = list[str]()
    for reference in find_references(text, start, end, xml=False):
        parts += text[start : reference.start], str(reference.value)
        start = reference.end
    return "".join((*parts, text[start:end]))


def joined(parts: Iterator[Part]) -> list[Part]:
    """Returns the parts with neighboring text as one."""
    result = list[Part]()
    for part in parts:
        if isinstance(part, str) and result and isinstance(result[-1], str):
            result[-1] += part
        else:
            result.append(part)
    return result


def test_tags_their_ends_and_the_text_of_hostile_html_are_those_of_browsers(*, thorough: bool) -> None:
    @settings(max_examples=20_000 if thorough else 400)
    @given(HOSTILE_HTML)
    def check(text: str) -> None:
        assert joined(scan(text)) == joined(scan_as_browsers(text))

    check()


class PageMaker:
    """Makes pages of blocks with a number for each word."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._words = 0

    def page(self) -> str:
        return "".join(self._block(3) for _ in range(self._draw(st.integers(1, 3))))

    def _word(self) -> str:
        self._words += 1
        return f"w{self._words} "

    def _end(self, name: str) -> str:
        return self._draw(st.sampled_from([f"</{name}>", ""]))

    def _inline(self, level: int) -> str:
        if level == 0 or self._draw(st.booleans()):
            return self._word()
        name = self._draw(st.sampled_from(["b", "i", "span", "code", "x-y"]))
        after = self._draw(st.sampled_from(["", "<img>", "<!-- a -->"]))
        return f"{self._word()}<{name}>{self._inline(level - 1)}</{name}>{after}"

    def _items(self, names: list[str], level: int) -> str:
        chosen = self._draw(st.lists(st.sampled_from(names), min_size=1, max_size=3))
        return "".join(f"<{name}>{self._block(level - 1)}{self._end(name)}" for name in chosen)

    def _table(self, level: int) -> str:
        rows = self._draw(st.integers(1, 2))
        return "".join(f"<tr>{self._items(['td', 'th'], level)}{self._end('tr')}" for _ in range(rows))

    def _block(self, level: int) -> str:
        kinds = {
            "inline": lambda: self._inline(2),
            "p": lambda: f"<p>{self._inline(2)}{self._end('p')}",
            "div": lambda: f"<div>{self._block(level - 1)}{self._block(level - 1)}</div>",
            "ul": lambda: f"<ul>{self._items(['li'], level)}</ul>",
            "dl": lambda: f"<dl>{self._items(['dt', 'dd'], level)}</dl>",
            "table": lambda: f"<table><tbody>{self._table(level)}</table>",
        }
        return kinds[self._draw(st.sampled_from(list(kinds))) if level else "inline"]()


@st.composite
def pages(draw: st.DrawFn) -> str:
    """Draws the body of a page: lists, tables, paragraphs and inline elements, whose end tags may be left out."""
    return PageMaker(draw).page()


def elements_around_words(text: str) -> dict[str, list[str]]:
    """Returns the names of the elements around each word, from the outside to the inside."""
    tokens = list(scan_html(text))
    tree = build_tree(text, tokens, MarkupOptions("html"))
    found = dict[str, list[str]]()
    for token, owner in zip(tokens, tree.owners, strict=True):
        names, level = list[str](), owner
        while level not in (NONE, ROOT):
            names.insert(0, tree.elements[level].name)
            level = tree.elements[level].parent
        if token.kind is Kind.TEXT:
            found |= dict.fromkeys(text[token.start : token.end].split(), names)
    return found


def elements_in_browsers(text: str) -> dict[str, list[str]]:
    """Returns the same by html5lib's parser. Without the declaration, a table would not end a paragraph."""
    found = dict[str, list[str]]()
    (body,) = html5lib.parse(f"<!doctype html>{text}", namespaceHTMLElements=False).iterfind("body")
    waiting = [(body, list[str]())]
    while waiting:
        element, names = waiting.pop()
        found |= dict.fromkeys((element.text or "").split() if isinstance(element.tag, str) else (), names)
        for child in element:
            found |= dict.fromkeys((child.tail or "").split(), names)
            waiting.append((child, [*names, child.tag]))
    return found


def test_the_elements_around_text_are_those_of_browsers(*, thorough: bool) -> None:
    """Also if end tags are left out."""

    @settings(max_examples=5000 if thorough else 150)
    @given(pages())
    def check(text: str) -> None:
        assert elements_around_words(text) == elements_in_browsers(text)

    check()
