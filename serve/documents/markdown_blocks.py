"""Blocks of Markdown that CommonMark lacks: footnotes, definitions, admonitions, formulas, and lines of markup.

The rules are those of a parser of markdown-it. They take linear time.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from markdown_it import MarkdownIt
from markdown_it.ruler import RuleOptionsType
from markdown_it.rules_block import StateBlock

# `[^1]: The note.`, `*[HTML]: The abbreviation`, `: The definition.`
_MARK = re.compile(r"\[\^[^\[\]\s]++\]:|\*\[[^\[\]]++\]:|[:~](?=[ \t])")
# `!!! note "Title"`, `??? note`, `=== "Tab"`; their texts are the indented lines below.
_ADMONITION = re.compile(
    r"(?:(?:!!!|\?\?\?)\+?[ \t]++[\w-][\w \t-]*+|===[!+]?[ \t]++(?=\"))(?:\"(?P<TITLE>[^\"]*+)\")?[ \t]*+"
)
# Blocks of formulas, by how their first lines begin, and how they end.
_FORMULAS = (("$$", "$$"), ("\\[", "\\]"), ("\\\\[", "\\\\]"), ("\\begin{", "\\end{"))
_AFTER_FORMULA = re.compile(r"[^{}]*\}|\s*(?:\([^()]*\)|\{[^{}]*\})?\s*")
# Fences and titles of notes, tables of contents, attributes and templates, kinds of quotations.
_MARKUP_LINE = re.compile(
    r":{3,}.*|(?:!!!|\?\?\?)\+?[ \t]+[\w-].*|\[toc\]|\[\[_?toc_?\]\]|\{[%:{<#.].*\}|\[!\w+\][-+]?", re.IGNORECASE
)
_INDENT = 4


def add_blocks(parser: MarkdownIt) -> None:
    """Adds the blocks to a parser."""
    ends: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    parser.block.ruler.before("blockquote", "formula", _read_formula, ends)
    parser.block.ruler.before("blockquote", "admonition", _read_admonition, ends)
    parser.block.ruler.before("blockquote", "markup_line", _read_markup_line, ends)
    parser.block.ruler.before("reference", "marked", _read_marked, ends)


def _line(state: StateBlock, number: int) -> str:
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]]


def _read_formula(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """Skips a formula, which has no empty line."""
    line = _line(state, first).rstrip()
    begin, end = next((formula for formula in _FORMULAS if line.startswith(formula[0])), ("", ""))
    # In a text, `\[` is a bracket.
    if not begin or state.is_code_block(first) or (begin.endswith("[") and line != begin):
        return False
    number, rest = first, line[len(begin) :]
    while end not in rest:
        number += 1
        if number >= last or state.isEmpty(number) or state.sCount[number] < state.blkIndent:
            return False
        rest = _line(state, number)
        if rest.startswith(begin) and begin != end:
            return False
    if not _AFTER_FORMULA.fullmatch(rest.partition(end)[2]):
        return False
    state.line = first if silent else number + 1
    return True


def _read_markup_line(state: StateBlock, first: int, _: int, silent: bool) -> bool:
    if state.is_code_block(first) or not _MARKUP_LINE.fullmatch(_line(state, first).rstrip()):
        return False
    state.line = first if silent else first + 1
    return True


def _read_marked(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """Reads what stands behind the mark of a footnote or of a definition, and the indented lines below."""
    start = state.bMarks[first] + state.tShift[first]
    mark = _MARK.match(state.src, start, state.eMarks[first])
    if mark is None or state.is_code_block(first):
        return False
    if silent:
        return True
    with _inside(state, first, mark.end(), state.eMarks[first]):
        state.md.block.tokenize(state, first, last)
    return True


def _read_admonition(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """Reads the title of an admonition or a tab, and the indented lines below."""
    start = state.bMarks[first] + state.tShift[first]
    match = _ADMONITION.fullmatch(state.src, start, state.eMarks[first])
    if match is None or state.is_code_block(first):
        return False
    if silent:
        return True
    with _inside(state, first, match.start("TITLE"), match.end("TITLE")):
        if match["TITLE"]:
            # The title does not go on in the next line.
            lines, state.lineMax = state.lineMax, first + 1
            state.md.block.tokenize(state, first, first + 1)
            state.lineMax = lines
        state.line = first + 1
        state.md.block.tokenize(state, first + 1, last)
    return True


@contextmanager
def _inside(state: StateBlock, first: int, start: int, end: int) -> Iterator[None]:
    """Lets a block begin with some characters of its first line and go on with indented lines."""
    before = (
        (state.bMarks[first], state.tShift[first], state.sCount[first], state.eMarks[first]),
        (state.parentType, state.blkIndent),
    )
    text = state.src[start:end]
    state.blkIndent += _INDENT
    state.bMarks[first], state.tShift[first] = start, len(text) - len(text.lstrip(" \t"))
    state.sCount[first], state.eMarks[first] = state.blkIndent, end
    state.parentType = "marked"
    state.level += 1
    yield
    state.level -= 1
    (state.bMarks[first], state.tShift[first], state.sCount[first], state.eMarks[first]) = before[0]
    state.parentType, state.blkIndent = before[1]
