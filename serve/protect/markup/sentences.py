"""Sentences of a document: their plain text, and the tags inside of them as a tree.

A tag belongs to a sentence if its translation may move it: if it stands inside of the sentence, or if it stands next to
the sentence and its partner inside. All other tags stay between the sentences. An element that begins in one sentence
and ends in another one has an open side in both.
"""

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from dragoman.serve.protect.markup.blocks import SPACES, Block, BlockReader, Mark, MarkKind, read_lines
from dragoman.serve.protect.markup.elements import MarkupOptions, build_tree
from dragoman.serve.protect.markup.html import scan_html
from dragoman.serve.protect.markup.references import Escaper, Reference
from dragoman.serve.protect.markup.xml import scan_xml

Spans = Sequence[tuple[int, int]]
# Returns the sentences of each plain text: their first characters, and the characters after their last ones.
Split = Callable[[Sequence[str]], Sequence[Spans]]
ReadBlocks = Callable[[Container[int]], tuple[list[Block], Sequence[Reference]]]


class Marking:
    """What a text has besides its markup: here, nothing."""

    def parts(self, text: str) -> Spans:
        """Returns the parts of a plain text, or of that of a block, that are translated; they are in order."""
        return [(0, len(text))]

    def mark(self, block: Block, opaque: Container[int]) -> Block:  # noqa: ARG002 - of subclasses
        """Returns the block with more marks, given the kept texts that are points, by their elements."""
        return block


UNMARKED = Marking()


# Where a tag stands: in an earlier sentence, before this one, in it, after it, or in a later one.
_EARLIER, _BEFORE, _INSIDE, _AFTER, _LATER = range(5)
_OWN = {(_BEFORE, _INSIDE), (_INSIDE, _INSIDE), (_INSIDE, _AFTER), (_INSIDE, _LATER)}


@dataclass(slots=True)
class Node:
    """An element, a point or kept text in a sentence.

    Attributes:
        kind: OPEN for an element.
        start, end: characters of the sentence.
        before, after: the characters of its tags; those of a point or of kept text are in `before`.
        starts, ends: whether an element starts and ends in this sentence.
        spaced: whether white space precedes and follows a point or kept text.
        children: in the order of the document.
    """

    kind: MarkKind
    start: int
    end: int
    before: str = ""
    after: str = ""
    starts: bool = True
    ends: bool = True
    spaced: tuple[bool, bool] = (False, False)
    children: list["Node"] = field(default_factory=list)


def kept_nodes(nodes: Sequence[Node]) -> Iterator[Node]:
    """Yields the kept texts of a sentence, in their order."""
    for node in nodes:
        if node.kind is MarkKind.KEPT:
            yield node
        yield from kept_nodes(node.children)


def has_letter_outside(text: str, parts: Iterable[tuple[int, int]]) -> bool:
    """Returns whether a text has a letter outside of some parts, which are in order and do not overlap."""
    position = 0
    for start, end in parts:
        if any(map(str.isalpha, text[position:start])):
            return True
        position = end
    return any(map(str.isalpha, text[position:]))


@dataclass(frozen=True, slots=True)
class MarkedSentence:
    """A sentence: its plain text, its characters of the document with tags, and what its translation must contain."""

    text: str
    nodes: tuple[Node, ...]
    source: str

    @property
    def kept(self) -> list[tuple[int, int]]:
        """The characters of the kept texts."""
        return [(node.start, node.end) for node in kept_nodes(self.nodes)]

    @property
    def kept_texts(self) -> list[str]:
        """The kept texts, in their order."""
        return [self.text[start:end] for start, end in self.kept]

    @property
    def has_words(self) -> bool:
        """Whether there is a letter outside of the kept texts."""
        return has_letter_outside(self.text, self.kept)


@dataclass(frozen=True, slots=True)
class MarkedDocument:
    """A document in sentences.

    Attributes:
        gaps: the document before, between and after the sentences.
        escaper: for translated text.
    """

    sentences: tuple[MarkedSentence, ...]
    gaps: tuple[str, ...]
    escaper: Escaper


def read_document(text: str, options: MarkupOptions, split: Split, marking: Marking = UNMARKED) -> MarkedDocument:
    """Returns the sentences, which `split` finds in the texts of all blocks; raises MarkupError if malformed."""
    read_blocks = _block_reader(text, options, marking)
    cut = set[int]()
    # A sentence must not end inside of kept text. If it would, the text becomes a point, which may join sentences.
    for opaque in (cut, cut, _Everything()):
        read, references = read_blocks(opaque)
        read = [marking.mark(block, opaque) for block in read]
        blocks = list(zip(read, _split_parts(read, split, marking), strict=True))
        found = {mark.element for block, spans in blocks for mark in block.kept if _is_cut(mark, spans)}
        if not found:
            break
        cut |= found
    escaper = Escaper(text, references, "".join(block.text for block in read), plain=options.format == "text")
    return _Assembly(text).assemble(blocks, escaper)


def _split_parts(blocks: Sequence[Block], split: Split, marking: Marking) -> list[Spans]:
    """Returns the sentences of each block: those of its parts."""
    parts = [(index, *part) for index, block in enumerate(blocks) for part in marking.parts(block.text)]
    sentences: list[list[tuple[int, int]]] = [[] for _ in blocks]
    texts = [blocks[index].text[start:end] for index, start, end in parts]
    for (index, first, _), spans in zip(parts, split(texts), strict=True):
        sentences[index] += ((first + start, first + end) for start, end in spans)
    return list[Spans](sentences)


class _Everything:
    def __contains__(self, _: object) -> bool:
        return True


def _block_reader(text: str, options: MarkupOptions, marking: Marking) -> ReadBlocks:
    """Returns a function that reads the blocks of a document, given the elements that are points."""
    if options.format == "text":
        parts = marking.parts(text)
        return lambda _: (list(read_lines(text, parts)), ())
    tokens = list(scan_html(text)) if options.format == "html" else scan_xml(text)
    tree = build_tree(text, tokens, options)

    def read(opaque: Container[int]) -> tuple[list[Block], Sequence[Reference]]:
        reader = BlockReader(text, tokens, tree, options, opaque)
        return list(reader.read()), reader.references

    return read


def _is_cut(mark: Mark, spans: Spans) -> bool:
    """Returns whether no sentence holds all of a kept text."""
    index = bisect_left(spans, mark.text_end, key=lambda span: span[1])
    return index == len(spans) or spans[index][0] > mark.text_start


class _Assembly:
    def __init__(self, text: str) -> None:
        self._text = text
        self._sentences = list[MarkedSentence]()
        self._gaps = list[str]()
        # End of the last sentence, and the tags behind it that belong to it.
        self._end = 0
        self._moved = list[Mark]()

    def assemble(self, blocks: Sequence[tuple[Block, Spans]], escaper: Escaper) -> MarkedDocument:
        for block, spans in blocks:
            translated = [span for span in spans if not _is_kept(block.text, span, block.kept)]
            for span, window in zip(translated, _windows(block, translated), strict=True):
                self._add(block, span, window)
        self._end_gap(len(self._text))
        return MarkedDocument(tuple(self._sentences), tuple(self._gaps), escaper)

    def _add(self, block: Block, span: tuple[int, int], window: Sequence[Mark]) -> None:
        start, end = block.source(*span)
        reader = _NodeReader(self._text, span, (start, end), window)
        nodes = reader.read()
        self._moved += reader.moved
        self._end_gap(start)
        self._end = end
        self._moved = reader.moved
        before = (mark for mark in reader.moved if mark.start < start)
        after = (mark for mark in reader.moved if mark.start >= end)
        parts = (*self._texts(before), self._text[start:end], *self._texts(after))
        self._sentences.append(MarkedSentence(block.text[slice(*span)], tuple(nodes), "".join(parts)))

    def _texts(self, marks: Iterable[Mark]) -> list[str]:
        return [self._text[mark.start : mark.end] for mark in sorted(marks, key=lambda mark: mark.start)]

    def _end_gap(self, end: int) -> None:
        """Adds the gap up to an offset, without the tags that belong to the sentences around it."""
        parts, position = list[str](), self._end
        for mark in sorted(self._moved, key=lambda mark: mark.start):
            if self._end <= mark.start < end:
                parts.append(self._text[position : mark.start])
                position = mark.end
        self._gaps.append("".join((*parts, self._text[position:end])))


def _is_kept(text: str, span: tuple[int, int], kept: Sequence[Mark]) -> bool:
    """Returns whether a sentence has kept text, and no letter outside of it."""
    first = bisect_left(kept, span[0], key=lambda mark: mark.text_start)
    last = bisect_left(kept, span[1], key=lambda mark: mark.text_start)
    parts = [(mark.text_start - span[0], mark.text_end - span[0]) for mark in kept[first:last]]
    return bool(parts) and not has_letter_outside(text[slice(*span)], parts)


def _windows(block: Block, spans: Spans) -> list[Sequence[Mark]]:
    """Returns the marks in, directly before and directly after each sentence."""
    sources = [block.source(*span) for span in spans]
    ends = [0, *(end for _, end in sources)][: len(sources)]
    starts = [*(start for start, _ in sources), None][1:]

    def index(offset: int) -> int:
        return bisect_left(block.marks, offset, key=lambda mark: mark.start)

    return [
        _near(block.text, span, block.marks[index(end) : None if start is None else index(start)])
        for span, end, start in zip(spans, ends, starts, strict=True)
    ]


def _near(text: str, span: tuple[int, int], marks: Sequence[Mark]) -> Sequence[Mark]:
    """Returns the marks that only white space parts from a sentence: untranslated text may stand next to it."""
    start, end = span
    while start > 0 and text[start - 1].isspace():
        start -= 1
    while end < len(text) and text[end].isspace():
        end += 1
    return [mark for mark in marks if start <= mark.text_start and mark.text_end <= end]


class _NodeReader:
    """Builds the tree of one sentence; `moved`: marks of the tree that stand before or after the sentence."""

    def __init__(self, text: str, span: tuple[int, int], source: tuple[int, int], window: Sequence[Mark]) -> None:
        """Starts an empty tree of a span of the plain text and of the source, with the marks in and next to it."""
        self.moved = list[Mark]()
        self._text = text
        self._first, self._last = span
        self._source = source
        self._window = window
        self._partners = dict[int, tuple[Mark | None, Mark | None]]()
        for mark in window:
            opening, closing = self._partners.get(mark.element, (None, None))
            if mark.kind is MarkKind.OPEN:
                self._partners[mark.element] = mark, closing
            elif mark.kind is MarkKind.CLOSE:
                self._partners[mark.element] = opening, mark
        self._roots = list[Node]()
        # The elements of this sentence that are open.
        self._open = list[tuple[int, Node]]()

    def read(self) -> list[Node]:
        for mark in self._window:
            if mark.kind is MarkKind.OPEN:
                self._open_element(mark)
            elif mark.kind is MarkKind.CLOSE:
                self._close_element(mark)
            elif self._side(mark, _EARLIER) == _INSIDE or (self._open and self._open[-1][1].ends):
                self._attach(self._node(mark, mark.text_end))
        return self._roots

    def _side(self, mark: Mark | None, missing: int) -> int:
        if mark is None:
            return missing
        return _BEFORE if mark.start < self._source[0] else _AFTER if mark.start >= self._source[1] else _INSIDE

    def _open_element(self, mark: Mark) -> None:
        closing = self._partners[mark.element][1]
        sides = self._side(mark, _EARLIER), self._side(closing, _LATER)
        if sides not in _OWN:
            return
        end = self._last if closing is None else closing.text_start
        node = self._node(mark, end, ends=closing is not None)
        if closing is not None:
            node.after = self._text[closing.start : closing.end]
            self._note(closing)
        self._attach(node)
        self._open.append((mark.element, node))

    def _close_element(self, mark: Mark) -> None:
        if self._open and self._open[-1][0] == mark.element:
            self._open.pop()
        elif self._partners[mark.element][0] is None and self._side(mark, _EARLIER) == _INSIDE:
            after = self._text[mark.start : mark.end]
            node = Node(MarkKind.OPEN, 0, mark.text_start - self._first, after=after, starts=False)
            # It began before all that was read.
            node.children, self._roots = self._roots, [node]

    def _node(self, mark: Mark, end: int, *, ends: bool = True) -> Node:
        self._note(mark)
        return Node(
            mark.kind,
            self._clip(mark.text_start),
            self._clip(end),
            before=mark.raw(self._text),
            ends=ends,
            spaced=(self._is_space(mark.start - 1), self._is_space(mark.end)),
        )

    def _is_space(self, position: int) -> bool:
        return 0 <= position < len(self._text) and self._text[position] in SPACES

    def _clip(self, offset: int) -> int:
        return min(max(offset, self._first), self._last) - self._first

    def _note(self, mark: Mark) -> None:
        if self._side(mark, _EARLIER) != _INSIDE:
            self.moved.append(mark)

    def _attach(self, node: Node) -> None:
        (self._open[-1][1].children if self._open else self._roots).append(node)
