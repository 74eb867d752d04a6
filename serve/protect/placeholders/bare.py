"""A sentence without its placeholders: a model reads it that does not translate the sentence with them.

Placeholders become points. Quotation marks and brackets around one belong to its point, as does an element that has
nothing else.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter

from dragoman.serve.protect.markup.blocks import MarkKind
from dragoman.serve.protect.markup.placement import Interval
from dragoman.serve.protect.markup.sentences import MarkedSentence, Node, has_letter_outside
from dragoman.serve.protect.placeholders.check import with_space

_PAIRS = frozenset({"()", "[]", '""', "''", "\u201e\u201c", "\u201c\u201d", "\u2018\u2019", "\u00ab\u00bb"})


def without_placeholders(sentence: MarkedSentence, escape: Callable[[str], str]) -> MarkedSentence:
    """Returns the sentence without kept texts, which are points; `escape` spells text as the document."""
    return _Bare(sentence, escape).sentence()


class _Bare:
    """Removes the kept texts of one sentence."""

    def __init__(self, sentence: MarkedSentence, escape: Callable[[str], str]) -> None:
        self._sentence = sentence
        self._escape = escape
        # Kept text with what belongs to it, and with a space that must not remain, in order.
        self._wholes = list(map(self._whole, sentence.kept))
        self._cuts = list[Interval]()
        for start, end in self._wholes:
            self._cuts.append(with_space(sentence.text, self._cuts[-1][1] if self._cuts else 0, start, end))

    def sentence(self) -> MarkedSentence:
        """Returns the sentence without kept texts."""
        text = self._sentence.text
        edges = [0, *(offset for cut in self._cuts for offset in cut), len(text)]
        parts = (text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))
        return replace(self._sentence, text="".join(parts), nodes=tuple(self._all_changed(self._sentence.nodes)))

    def _all_changed(self, nodes: Sequence[Node]) -> list[Node]:
        """Returns the nodes without kept texts; those with nothing between them are one point."""
        changed = list[Node]()
        end = -1
        for node in nodes:
            kept = node.kind is MarkKind.KEPT
            if kept and node.start == end:
                first = changed[-1]
                after = self._changed(node)
                joined = f"{first.before}{after.before}"
                changed[-1] = replace(first, before=joined, spaced=(first.spaced[0], after.spaced[1]))
            else:
                changed.append(self._changed(node))
            end = node.end if kept else -1
        return changed

    def _whole(self, span: Interval) -> Interval:
        """Returns kept text with the marks around it, if no element could stand between them."""
        text, (start, end) = self._sentence.text, span
        elements = any(node.kind is MarkKind.OPEN for node in self._sentence.nodes)
        while not elements and start > 0 and f"{text[start - 1]}{text[end : end + 1]}" in _PAIRS:
            start, end = start - 1, end + 1
        return start, end

    def _moved(self, offset: int) -> int:
        return offset - sum(min(end, offset) - start for start, end in self._cuts if start < offset)

    def _changed(self, node: Node) -> Node:
        if node.kind is MarkKind.KEPT:
            return self._point(node)
        if node.starts and node.ends and node.children and not self._has_text(node):
            return self._at(node.start, node.end, self._content(node))
        children = self._all_changed(node.children)
        return replace(node, start=self._moved(node.start), end=self._moved(node.end), children=children)

    def _has_text(self, node: Node) -> bool:
        """Returns whether a letter stands in an element besides kept text."""
        kept = [(start - node.start, end - node.start) for start, end in self._sentence.kept]
        inside = [(start, end) for start, end in kept if start >= 0 and end <= node.end - node.start]
        return has_letter_outside(self._sentence.text[node.start : node.end], inside)

    def _content(self, node: Node) -> str:
        """Returns the characters of an element in the document."""
        parts, position, text = [node.before], node.start, self._sentence.text
        for child in node.children:
            parts += self._escape(text[position : child.start]), self._content(child)
            position = child.end
        return "".join((*parts, node.after))

    def _point(self, node: Node) -> Node:
        start, end = self._wholes[bisect_left(self._sentence.kept, node.start, key=itemgetter(0))]
        text = self._sentence.text
        return self._at(
            start, end, f"{self._escape(text[start : node.start])}{node.before}{self._escape(text[node.end : end])}"
        )

    def _at(self, start: int, end: int, content: str) -> Node:
        """Returns a point with blanks around it, unless it touches something in the sentence."""
        text, offset = self._sentence.text, self._moved(start)
        spaced = start == 0 or text[start - 1].isspace(), end == len(text) or text[end].isspace()
        return Node(MarkKind.POINT, offset, offset, before=content, spaced=spaced)
