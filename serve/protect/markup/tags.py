"""Writes the translation of a sentence with its tags.

Kept texts replace the words that are aligned with them, but never all words of a translation.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from dragoman.serve.protect.alignment import Alignment
from dragoman.serve.protect.markup.placement import Interval, Placed, Placer
from dragoman.serve.protect.markup.references import Escaper
from dragoman.serve.protect.markup.sentences import MarkedSentence, has_letter_outside


def place_tags(
    sentence: MarkedSentence,
    translation: str,
    alignment: Alignment,
    escaper: Escaper,
    protected: Sequence[Interval] = (),
) -> str:
    """Returns a plain translation with the tags of its sentence; no kept text replaces protected intervals."""
    everything = 0, len(translation)
    placed = Placer(sentence.text, translation, alignment, protected).place(sentence.nodes, everything)
    if sentence.has_words and not has_letter_outside(translation, _replaced(placed)):
        # The kept texts stand between the words.
        words = _words_outside(translation, set(sentence.kept_texts))
        placed = Placer(sentence.text, translation, alignment, (*protected, *words)).place(sentence.nodes, everything)
    return _render(placed, everything, translation, escaper)


def _replaced(placed: Iterable[Placed]) -> Iterator[Interval]:
    """Yields what kept texts replace."""
    for node in placed:
        if node.kept:
            yield node.interval
        yield from _replaced(node.children)


def _words_outside(text: str, kept: Iterable[str]) -> Iterator[Interval]:
    """Yields the words of a text outside of copies of kept texts."""
    copies = "|".join(map(re.escape, sorted(kept, key=len, reverse=True)))
    for match in re.finditer(rf"{copies}|(\w+)", text):
        if match[1]:
            yield match.span()


def _render(placed: Sequence[Placed], interval: Interval, text: str, escaper: Escaper) -> str:
    """Returns a part of the translation with the tags in it, which are in order."""
    parts = list[str]()
    position, end = interval
    for node in placed:
        parts += escaper.escape(text[position : node.interval[0]]), node.before
        if not node.kept:
            parts.append(_render(node.children, node.interval, text, escaper))
        parts.append(node.after)
        position = node.interval[1]
    return "".join((*parts, escaper.escape(text[position:end])))
