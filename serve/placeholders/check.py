"""Checks that a translation has the placeholders of its text, and finds what is lost or surplus."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from serve.alignment import SENTENCE_MARKS, Alignment, Span
from serve.markup.blocks import MarkKind
from serve.markup.placement import find_place
from serve.markup.sentences import MarkedSentence, Node
from serve.placeholders.patterns import Finder


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


def kept_nodes(nodes: Sequence[Node]) -> Iterator[Node]:
    """Yields the kept texts of a sentence, in their order."""
    for node in nodes:
        if node.kind is MarkKind.KEPT:
            yield node
        yield from kept_nodes(node.children)


def lost_nodes(sentence: MarkedSentence, translation: str) -> list[Node]:
    """Returns the kept texts that the translation lacks."""
    left = Counter[str]()
    texts = {sentence.text[node.start : node.end] for node in kept_nodes(sentence.nodes)}
    rest = translation
    # A longer one may contain a shorter one.
    for text in sorted(texts, key=len, reverse=True):
        left[text] = rest.count(text)
        rest = rest.replace(text, "\0")
    lost = list[Node]()
    for node in kept_nodes(sentence.nodes):
        text = sentence.text[node.start : node.end]
        if left[text]:
            left[text] -= 1
        else:
            lost.append(node)
    return lost


def forced_prefix(sentence: MarkedSentence, translation: str, alignment: Alignment, lost: Node) -> str:
    """Returns the start of a translation that has a lost text where the alignment of this translation puts it."""
    before = translation[: find_place(sentence, translation, alignment, lost)].rstrip()
    spaced = sentence.text[max(0, lost.start - 1) : lost.start].isspace()
    return f"{before}{' ' * (spaced and bool(before))}{sentence.text[lost.start : lost.end]}"


def without_surplus(
    sentence: MarkedSentence, translation: str, alignment: Alignment, finder: Finder
) -> tuple[str, Alignment]:
    """Returns a translation and its alignment without placeholders that the sentence does not have."""
    room = Counter(sentence.text[node.start : node.end] for node in kept_nodes(sentence.nodes))
    cuts = list[tuple[int, int]]()
    for run in finder.runs(translation):
        whole = run[0].start, run[-1].end
        places = [whole] if room[translation[slice(*whole)]] else [(each.start, each.end) for each in run]
        for start, end in places:
            text = translation[start:end]
            if room[text]:
                room[text] -= 1
            else:
                cuts.append(_with_space(translation, cuts[-1][1] if cuts else 0, start, end))
    if not cuts:
        return translation, alignment

    def moved(place: int) -> int:
        return place - sum(min(end, place) - start for start, end in cuts if start < place)

    edges = [0, *(place for cut in cuts for place in cut), len(translation)]
    parts = (translation[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))
    spans = tuple(Span(moved(span.start), moved(span.end)) for span in alignment.target)
    return "".join(parts), replace(alignment, target=spans)


def _with_space(text: str, first: int, start: int, end: int) -> tuple[int, int]:
    """Returns a part of a text, `start` to `end`, with a space that must not remain, which is at `first` or later.

    Without the part, it would stand next to another space, before a comma, or at an end of the text.
    """
    following = text[end : end + 1]
    if text[first:start].endswith(" ") and following in f" {SENTENCE_MARKS}":
        return start - 1, end
    return start, end + (following == " " and text[start - 1 : start] in ("", " "))
