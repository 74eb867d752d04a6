"""Charts of office documents: the strings that they show, such as names of series and categories.

A chart shows copies of the cells of its workbook. The copies are translated; the workbook stays.
"""

from collections.abc import Iterator

from dragoman.serve.documents.document import Segment, is_translatable
from dragoman.serve.documents.splice import Part
from dragoman.serve.documents.xml import XmlText, escape, local
from dragoman.serve.protect.markup.tokens import Kind, names

# Elements with copies of strings, in both kinds of charts. Numbers and formulas have others.
_STRINGS = names("strCache strLit multiLvlStrCache strDim")
_VALUES = names("v pt")
_NAME, _NAMED = "v", names("tx txData")


def chart_parts(document: XmlText) -> Iterator[Part]:
    """Yields the parts of the strings of a chart; its paragraphs are others."""
    # Names of open elements, and the number of those with strings.
    levels, strings = list[str](), 0
    for index, token in enumerate(document.tokens):
        name = local(token.name)
        if token.kind is Kind.START:
            text = document.ends[index] == index + 2 and document.tokens[index + 1].kind is Kind.TEXT
            named = name == _NAME and levels and levels[-1] in _NAMED
            if text and (named or (strings and name in _VALUES)):
                yield from _part(document, index)
            levels.append(name)
            strings += name in _STRINGS
        elif token.kind is Kind.END:
            strings -= levels.pop() in _STRINGS


def _part(document: XmlText, index: int) -> Iterator[Part]:
    """Yields the part of an element with nothing but text."""
    text = document.plain(index + 1, index + 1)
    bare = text.strip()
    if not is_translatable(bare):
        return
    start = text.index(bare)
    before, after = escape(text[:start]), escape(text[start + len(bare) :])
    span = document.tokens[index].end, document.tokens[index + 2].start
    yield Part(Segment(bare), (span,), lambda translation: (f"{before}{escape(translation)}{after}",))
