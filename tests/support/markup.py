"""Random markup, translations with known alignments, and the structure of documents."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

import numpy as np
from hypothesis import strategies as st

from dragoman.serve.protect.alignment import Alignment
from dragoman.serve.protect.markup.elements import MarkupOptions
from dragoman.serve.protect.markup.sentences import Split, read_document
from dragoman.serve.protect.markup.tags import place_tags
from dragoman.serve.translation.segments import split_text

# Returns the translation of a sentence and its alignment, by tokens.
Translate = Callable[[str], tuple[str, Alignment]]
WORDS = ("ab", "cd", "e", "Fg", "h2", "ij")
PARTS = [*"<>/!-='\" ab&;?\n#\u212a\u017f\u00e9", "<!--", "-->", "--!>", "<!-->", "</", "<b", "</B>", "<br/>", "<p"]
PARTS += ["<script>", "<script ", "</script>", "</\u017fcript>", "<title>", "</title ", "<textarea>", "</textarea>"]
PARTS += ["<style>", "</style", "<![CDATA[", "]]>", "<!doctype x>", " a=b", ' c="d>"', "<plaintext>", "<lin\u212a>"]
PARTS += ["&amp", "&lt;", "&notit;", "&#65", "&#x80;", "&#0;", "&#xD800;", "&#x110000;", "&#38;lt;", "&nosuch;"]
HOSTILE_HTML = st.lists(st.sampled_from(PARTS), max_size=40).map("".join)


def tokens_of(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(r"[^\W\d]+|\d|[^\w\s]", text)]


def split(texts: Sequence[str]) -> list[list[tuple[int, int]]]:
    return list(map(_split, texts))


def _split(text: str) -> list[tuple[int, int]]:
    segmented = split_text(text, "en", lambda sentence: len(sentence) < 60, 10_000)
    spans = list[tuple[int, int]]()
    place = 0
    for gap, sentence in zip(segmented.gaps, segmented.sentences, strict=False):
        place += len(gap)
        spans.append((place, place + len(sentence)))
        place += len(sentence)
    return spans


def same(text: str) -> tuple[str, Alignment]:
    """Translates by a copy; each character is a token."""
    tokens = [(place, place + 1) for place in range(len(text))]
    return text, Alignment.of(tokens, tokens, np.eye(len(tokens)))


def shuffled(seed: int, noise: float = 0.0) -> Translate:
    """Returns a translation that reorders the tokens of each sentence; `noise` is the share of random attention."""

    def translate(text: str) -> tuple[str, Alignment]:
        random = np.random.default_rng([seed, len(text)])
        tokens = tokens_of(text)
        order = random.permutation(len(tokens))
        translation = " ".join(text[slice(*tokens[index])] for index in order)
        attention = (1 - noise) * np.eye(len(tokens))[order]
        attention += noise * random.dirichlet(np.ones(len(tokens)), len(tokens))
        return translation, Alignment.of(tokens, tokens_of(translation), attention)

    return translate


def whole(texts: Sequence[str]) -> list[list[tuple[int, int]]]:
    return [[(0, len(text.rstrip()))] for text in texts]


def translate_markup(
    text: str, options: MarkupOptions, translate: Translate = same, find_sentences: Split = split
) -> str:
    document = read_document(text, options, find_sentences)
    parts = list[str]()
    for gap, sentence in zip(document.gaps, document.sentences, strict=False):
        parts += gap, place_tags(sentence, *translate(sentence.text), document.escaper)
    return "".join((*parts, document.gaps[-1]))


@dataclass(frozen=True)
class Structure:
    """The tags of a document.

    Attributes:
        parents: the id of the element around each element, by id.
        others: comments and instructions, sorted.
        letters: visible characters of the text, sorted.
    """

    parents: dict[str, str]
    others: list[str]
    letters: list[str]


def structure_of(document: str) -> Structure:
    """Returns the structure of well-formed XML in which every element has an id of its own."""
    builder = ET.TreeBuilder(insert_comments=True, insert_pis=True)
    root = ET.fromstring(document, ET.XMLParser(target=builder))  # noqa: S314 - made by the test
    parents, others = dict[str, str](), list[str]()
    for parent in root.iter():
        for child in parent:
            if _is_element(child):
                assert child.get("id") not in parents
                parents[str(child.get("id"))] = str(parent.get("id"))
            else:
                others.append(str(child.text))
    return Structure(parents, sorted(others), sorted("".join("".join(_texts(root)).split())))


def _is_element(node: ET.Element) -> bool:
    """Returns whether a node is neither a comment nor an instruction; the tag of those is a function."""
    tag: object = node.tag
    return isinstance(tag, str)


def _texts(element: ET.Element) -> Iterator[str]:
    if _is_element(element) and element.text:
        yield element.text
    for child in element:
        yield from _texts(child)
        yield child.tail or ""


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Draws a well-formed document that is HTML as well, with an id for each element."""
    count = 0

    inline = st.sampled_from(["b", "i", "a", "span", "my-tag", "u"])
    block = st.sampled_from(["div", "section", "blockquote"])
    text = st.lists(
        st.sampled_from([*WORDS, " ", " ", ". ", "! ", ", ", "&amp;", "&lt;", "&#233;", "\n ", "ö"]),
        min_size=1,
        max_size=6,
    ).map("".join)
    void = st.sampled_from(["img", "br", "wbr"])
    other = st.sampled_from(["<!-- a <b> -->", "<!--x-->"])
    depth = draw(st.integers(1, 4))

    def make(level: int) -> str:
        nonlocal count
        parts = list[str]()
        for _ in range(draw(st.integers(1, 4))):
            kind = draw(st.integers(0, 9))
            if kind < 4 or level == 0:
                parts.append(draw(text))
            elif kind < 8:
                name = draw(block if kind == 7 and level > 1 else inline)
                count += 1
                number = count
                parts.append(f'<{name} id="{number}">{make(level - 1)}</{name}>')
            elif kind == 8:
                count += 1
                parts.append(f'<{draw(void)} id="{count}"/>')
            else:
                parts.append(draw(other))
        return "".join(parts)

    return f'<div id="0">{make(depth)}</div>'


def enclosed_words(text: str) -> set[tuple[str, int]]:
    """Returns the names of elements, each with the place of a word inside."""
    found, opened, place = set[tuple[str, int]](), list[str](), 0
    for part in re.finditer(r"<(/?)([a-z])>|[^\W_]+", text):
        if part[2] is None:
            found |= {(name, place) for name in opened}
            place += 1
        elif part[1]:
            opened.remove(part[2])
        else:
            opened.append(part[2])
    return found


def tag_f1(pairs: Sequence[tuple[str, str]]) -> tuple[float, float]:
    """Returns F1 over the words inside of elements, and the share of equal texts, of translations and references."""
    found = [(enclosed_words(translated), enclosed_words(reference)) for translated, reference in pairs]
    common = sum(len(ours & theirs) for ours, theirs in found)
    total = sum(len(ours) + len(theirs) for ours, theirs in found)
    return 2 * common / total, float(np.mean([translated == reference for translated, reference in pairs]))
