"""Elements of a document: which tags belong together, and what each element means for its text.

HTML elements are those that browsers build, with two simplifications. A tag without a partner stands alone. Elements
that cross, as in `<b><i></b></i>`, are not split: the one that ends last stands alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dragoman.serve.protect.markup.tokens import HTML_ELEMENTS, Kind, MarkupError, Token, names

MarkupFormat = Literal["text", "html", "xml"]
# Browsers stop at 512. Each level of a sentence takes a frame of the interpreter's stack.
MAX_LEVELS = 200
ROOT = 0
NONE = -1

BLOCKS, UNTRANSLATED, VISIBLE, _IN_PARAGRAPH = (
    names(HTML_ELEMENTS[kind]) for kind in ("blocks", "untranslated", "visible", "in_paragraph")
)
_ENDS = {name: (names(ended), names(stopping)) for name, (ended, stopping) in HTML_ELEMENTS["ends"].items()}
_PARAGRAPH = _ENDS.pop("paragraph")  # it is no name of an element


@dataclass(frozen=True, slots=True)
class MarkupOptions:
    """How to read a document. Names of tags in HTML are in lower case.

    Attributes:
        ignore_tags: elements whose content is copied without translation.
        splitting_tags: elements that end a sentence.
        non_splitting_tags: elements that do not end a sentence.
    """

    format: MarkupFormat
    ignore_tags: frozenset[str] = frozenset()
    splitting_tags: frozenset[str] = frozenset()
    non_splitting_tags: frozenset[str] = frozenset()


@dataclass(slots=True)
class Element:
    """An element, or a tag without a partner.

    Attributes:
        start: index of its start tag among the tokens; -1: the document.
        end: index of the token that ends it.
        closed: whether this token is its end tag.
        parent: index of the element around it.
        translate: what its start tag states.
        mixed: whether it has visible text of its own.
        block: whether it ends sentences.
        translated: whether its text is translated.
    """

    name: str
    start: int
    end: int
    parent: int
    translate: bool | None = None
    closed: bool = False
    mixed: bool = False
    block: bool = False
    translated: bool = True


@dataclass(frozen=True, slots=True)
class Tree:
    """The elements of a document, and the element of each token.

    The element of a start tag is its own. The element of an end tag is the one that it ends, -1 without one. The
    element of any other token is the one around it.
    """

    elements: list[Element]
    owners: list[int]


def build_tree(text: str, tokens: Sequence[Token], options: MarkupOptions) -> Tree:
    """Returns the elements of a document; raises MarkupError if elements are nested too deep."""
    html = options.format == "html"
    tree = Tree([Element("", NONE, len(tokens), NONE)], [])
    levels = [ROOT]
    for index, token in enumerate(tokens):
        owner = levels[-1]
        if token.kind is Kind.TEXT:
            element = tree.elements[owner]
            element.mixed = element.mixed or not text[token.start : token.end].isspace()
        elif token.kind is Kind.END:
            owner = _end_element(tree, levels, token.name, index)
        elif token.kind in (Kind.START, Kind.EMPTY):
            if html:
                _end_implied(tree, levels, token.name, index)
            owner = len(tree.elements)
            tree.elements.append(Element(token.name, index, index, levels[-1], token.translate))
            if token.kind is Kind.START:
                if len(levels) > MAX_LEVELS:
                    raise MarkupError(token.start, f"more than {MAX_LEVELS} levels of elements")
                levels.append(owner)
        tree.owners.append(owner)
    _end_levels(tree, levels, 1, len(tokens))
    _give_meaning(tree, options)
    return tree


def _end_levels(tree: Tree, levels: list[int], first: int, index: int) -> None:
    """Ends the open elements from a level on, without end tags."""
    for owner in levels[first:]:
        tree.elements[owner].end = index
    del levels[first:]


def _end_element(tree: Tree, levels: list[int], name: str, index: int) -> int:
    """Ends the innermost open element of a name; returns it, or -1 without one."""
    level = next((level for level in range(len(levels) - 1, 0, -1) if tree.elements[levels[level]].name == name), NONE)
    if level == NONE:
        return NONE
    owner = levels[level]
    element = tree.elements[owner]
    # An inline element may end inside of a block that began in it, which stays open. Other elements end with theirs.
    inside = levels[level + 1 :] if name not in BLOCKS else []
    kept = [item for item in inside if tree.elements[item].name in BLOCKS]
    _end_levels(tree, levels, level, index)
    levels += kept
    element.closed = True
    return owner


def _end_implied(tree: Tree, levels: list[int], name: str, index: int) -> None:
    """Ends open elements that cannot contain one of this name."""
    rules = [_ENDS[name]] if name in _ENDS else []
    if name in BLOCKS and name not in _IN_PARAGRAPH:
        rules.append(_PARAGRAPH)
    for ended, stopping in rules:
        for level in range(len(levels) - 1, 0, -1):
            found = tree.elements[levels[level]].name
            if found in ended:
                _end_levels(tree, levels, level, index)
                break
            if found in stopping:
                break


def _give_meaning(tree: Tree, options: MarkupOptions) -> None:
    html = options.format == "html"
    elements = tree.elements
    # In XML, an element inside of text is part of the sentence, with all elements inside of it.
    in_text = [False] * len(elements)
    elements[ROOT].block = True
    for index, element in enumerate(elements[1:], 1):
        parent = elements[element.parent]
        in_text[index] = in_text[element.parent] or parent.mixed
        element.block = element.name in BLOCKS if html else not in_text[index]
        element.block |= element.name in options.splitting_tags
        element.block &= element.name not in options.non_splitting_tags
        if element.name in options.ignore_tags or (html and element.name in UNTRANSLATED):
            element.translated = False
        else:
            element.translated = parent.translated if element.translate is None else element.translate
