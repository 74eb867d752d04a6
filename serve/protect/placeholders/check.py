"""Checks that a translation has the placeholders of its text, and finds what is lost or surplus."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from dragoman.serve.protect.alignment import SENTENCE_MARKS, Alignment, Span, is_word
from dragoman.serve.protect.markup.placement import Interval, find_offset
from dragoman.serve.protect.markup.sentences import MarkedSentence, Node, kept_nodes
from dragoman.serve.protect.placeholders.patterns import Finder


class RepairWay(StrEnum):
    """How a lost placeholder came back: decoded with a forced prefix, placed by alignment, or the text was kept."""

    DECODED = "decoded"
    PLACED = "placed"
    UNTRANSLATED = "untranslated"


@dataclass(frozen=True, slots=True)
class Repair:
    """A placeholder that the model lost, and how it came back."""

    placeholder: str
    way: RepairWay


class Borders:
    """On which sides the placeholders of a text touch words. In its translation, they touch none on the other sides."""

    def __init__(self, text: str, spans: Iterable[Interval]) -> None:
        spans = list(spans)
        self._before = {text[start:end] for start, end in spans if is_word(text[max(0, start - 1) : start])}
        self._after = {text[start:end] for start, end in spans if is_word(text[end : end + 1])}

    def glued(self, text: str, start: int, end: int) -> tuple[bool, bool]:
        """Returns whether a placeholder of a translation touches the words before and after it, and must not."""
        placeholder = text[start:end]
        before = is_word(text[max(0, start - 1) : start]) and placeholder not in self._before
        return before, is_word(text[end : end + 1]) and placeholder not in self._after


def lost_nodes(sentence: MarkedSentence, translation: str) -> list[Node]:
    """Returns the kept texts that the translation lacks, or has as a part of a word."""
    borders = Borders(sentence.text, sentence.kept)
    nodes = list(kept_nodes(sentence.nodes))
    # A longer one may contain a shorter one.
    texts = sorted({sentence.text[node.start : node.end] for node in nodes}, key=len, reverse=True)
    copies = re.finditer("|".join(map(re.escape, texts)), translation) if texts else ()
    left = Counter(copy[0] for copy in copies if not any(borders.glued(translation, *copy.span())))
    lost = list[Node]()
    for node in nodes:
        text = sentence.text[node.start : node.end]
        if left[text]:
            left[text] -= 1
        else:
            lost.append(node)
    return lost


def forced_prefix(sentence: MarkedSentence, translation: str, alignment: Alignment, lost: Node) -> str:
    """Returns the start of a translation that has a lost text where the alignment of this translation puts it."""
    before = translation[: find_offset(sentence, translation, alignment, lost)].rstrip()
    preceding = sentence.text[max(0, lost.start - 1) : lost.start]
    spaced = preceding.isspace() or (is_word(before[-1:]) and not is_word(preceding))
    return f"{before}{' ' * (spaced and bool(before))}{sentence.text[lost.start : lost.end]}"


def with_own_placeholders(
    sentence: MarkedSentence, translation: str, alignment: Alignment, finder: Finder
) -> tuple[str, Alignment]:
    """Returns a translation and its alignment without placeholders that the sentence does not have.

    Spaces part the others from words that they do not touch in the sentence.
    """
    room = Counter(sentence.kept_texts)
    borders = Borders(sentence.text, sentence.kept)
    edits = list[_Edit]()
    for run in finder.runs(translation):
        whole = run[0].start, run[-1].end
        spans = [whole] if room[translation[slice(*whole)]] else [(one.start, one.end) for one in run]
        for start, end in spans:
            text = translation[start:end]
            if room[text]:
                room[text] -= 1
                glued = zip((start, end), borders.glued(translation, start, end), strict=True)
                edits += (_Edit(offset, offset, " ") for offset, touches in glued if touches)
            else:
                edits.append(_Edit(*with_space(translation, edits[-1].end if edits else 0, start, end), ""))
    return _edited(translation, alignment, edits) if edits else (translation, alignment)


def has_same_placeholders(source: str, translation: str, finder: Finder) -> bool:
    """Returns whether a translation has the placeholders of its text, and none as a part of a word."""
    borders = Borders(source, finder.spans(source))
    glued = (borders.glued(translation, *span) for span in finder.spans(translation))
    return finder.texts(source) == finder.texts(translation) and not any(map(any, glued))


def joined_repairs(decoded: Iterable[Repair], placed: Iterable[Repair]) -> tuple[Repair, ...]:
    """Returns the repairs of a sentence: by decoding again, unless it was not translated, and after it."""
    last = tuple(placed)
    untranslated = any(repair.way is RepairWay.UNTRANSLATED for repair in last)
    return last if untranslated else (*decoded, *last)


class _Edit(NamedTuple):
    """A part of a text and what replaces it."""

    start: int
    end: int
    text: str


def _edited(translation: str, alignment: Alignment, edits: Sequence[_Edit]) -> tuple[str, Alignment]:
    """Returns a translation and its alignment after edits, which are in order."""

    def moved(offset: int, *, is_end: bool) -> int:
        before = [edit for edit in edits if edit.start < offset or (edit.start == edit.end == offset and not is_end)]
        return offset + sum(len(edit.text) - (min(edit.end, offset) - edit.start) for edit in before)

    parts, position = list[str](), 0
    for edit in edits:
        parts += translation[position : edit.start], edit.text
        position = edit.end
    spans = (Span(moved(span.start, is_end=False), moved(span.end, is_end=True)) for span in alignment.target)
    return "".join((*parts, translation[position:])), replace(alignment, target=tuple(spans))


def with_space(text: str, first: int, start: int, end: int) -> tuple[int, int]:
    """Returns a part of a text, `start` to `end`, with a space that must not remain, which is at `first` or later.

    Without the part, it would stand next to another space, before a comma, or at an end of the text.
    """
    following = text[end : end + 1]
    if text[first:start].endswith(" ") and following in f" {SENTENCE_MARKS}":
        return start - 1, end
    return start, end + (following == " " and text[start - 1 : start] in ("", " "))
