"""Terms of a sentence: where their translations stand, with which prefix to decode again, and how they are placed.

A translation has a term if one of the forms of its entry stands in it as whole words. So does a form with another
ending, where the alignment puts the term. Each form counts for one occurrence of a term. Pure functions.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from dragoman.serve.protect.alignment import Alignment
from dragoman.serve.protect.markup.blocks import MarkKind
from dragoman.serve.protect.markup.placement import Interval, Placer, word_start
from dragoman.serve.protect.markup.sentences import MarkedSentence, Node, kept_nodes
from dragoman.serve.protect.terms.edit import TermEdit, must_part
from dragoman.serve.protect.terms.entry import Entry
from dragoman.serve.protect.terms.matching import Match, TermIndex, UnitText, find_form, find_terms, fold

# Forms of a term that are tried in one round.
MAX_FORMS = 4
# Letters that an inflection keeps, and that it adds or changes at the end.
_MIN_LETTERS, _MAX_ENDING = 4, 3
_VOWELS = "aeiouyáéíóúýěůäöüàèìòùâêîôûãõå"


class TermWay(StrEnum):
    """How a term came into a translation: the model chose it, decoding again or placing by alignment brought it."""

    PRESENT = "present"
    DECODED = "decoded"
    PLACED = "placed"


@dataclass(frozen=True, slots=True)
class AppliedTerm:
    """A term of a text, its translation there, and how it came in."""

    source: str
    target: str
    way: TermWay


class Prefix(NamedTuple):
    """The start of a translation, and what it ends with; `complete`: whether a new word must follow."""

    text: str
    end: str
    complete: bool = True


@dataclass(frozen=True, slots=True)
class TextTerms:
    """The terms of a text.

    Attributes:
        indexes: of their entries; an earlier one counts first.
        traced: whether translations are only found by alignment, for the entries that change their term.
        followed: the entries for each word of `indexes`, in lower case, in a pivot text; None: `indexes` has them.
    """

    indexes: tuple[TermIndex, ...]
    traced: bool = False
    followed: Mapping[str, Sequence[Entry]] | None = None

    def of_sentence(self, text: str, marked: MarkedSentence | None) -> "SentenceTerms | None":
        """Returns the terms of one of its sentences outside of kept texts; None: it has none."""
        kept = () if marked is None else tuple(kept_nodes(marked.nodes))
        found = tuple(
            replace(match, entry=entry)
            for match in find_terms(text, self.indexes)
            for entry in self._entries(match)
            if not any(match.start < node.end and node.start < match.end for node in kept)
        )
        copies = tuple({text[node.start : node.end] for node in kept})
        return SentenceTerms(text, found, copies, self.traced) if found else None

    def _entries(self, match: Match) -> Sequence[Entry]:
        return (match.entry,) if self.followed is None else self.followed[fold(match.entry.source)]


@dataclass(frozen=True, slots=True)
class SentenceTerms:
    """The terms of a sentence, at least one, which replace no kept text; `traced` as of `TextTerms`."""

    text: str
    matches: tuple[Match, ...]
    kept: tuple[str, ...] = ()
    traced: bool = False

    @property
    def forms(self) -> Iterator[str]:
        """The forms of all terms."""
        return chain.from_iterable(map(self._forms, range(len(self.matches))))

    def lacking(self, translation: str, alignment: Alignment) -> list[int]:
        """Returns the terms that a translation lacks, by their index; none if the term is all of the sentence."""
        if self._is_term:
            return []
        spans = self._spans(translation, alignment)
        return [index for index, span in enumerate(spans) if span is None and not self._is_traced(index)]

    def prefixes(
        self, translation: str, alignment: Alignment, failed: Collection[int]
    ) -> tuple[int, list[Prefix]] | None:
        """Returns the first lacking term that has not failed, and starts of a translation that have a form of it."""
        lacking = [index for index in self.lacking(translation, alignment) if index not in failed]
        if not lacking:
            return None
        placer = Placer(self.text, translation, alignment)
        starts = ((placer.find_interval(_node(self.matches[term]))[0], term) for term in lacking)
        span, index = min((word_start(translation, start), term) for start, term in starts)
        before = translation[:span].rstrip()
        spaced = len(before) < span
        forms = [self._cased(index, form) if not before else form for form in self._forms(index)[:MAX_FORMS]]
        return index, [Prefix(f"{before}{' ' * (spaced or must_part(before, form))}{form}", form) for form in forms]

    def place(
        self, translation: str, alignment: Alignment, decoded: Collection[int]
    ) -> tuple[str, Alignment, tuple[AppliedTerm, ...]]:
        """Returns a translation with all terms, its alignment, and the terms; `decoded`: those by decoding again."""
        spans = self._spans(translation, alignment)
        if self._is_term and spans != [(0, len(translation))]:
            spans = [None]
        ways = [TermWay.DECODED if index in decoded else TermWay.PRESENT for index in range(len(spans))]
        for index, match in enumerate(self.matches):
            if spans[index] is not None:
                continue
            copies = (found.span() for text in self.kept for found in re.finditer(re.escape(text), translation))
            taken = [*filter(None, spans), *copies]
            interval = 0, len(translation)
            if not self._is_term:
                interval = Placer(self.text, translation, alignment).find_interval(_node(match), taken)
                interval = _uncut(translation, interval, taken)
            if self._is_traced(index):
                spans[index] = _whole_words(translation, interval)
                continue
            form = self._forms(index)[0]
            form = form if translation[: interval[0]].strip() else self._cased(index, form)
            edit = TermEdit.of(translation, interval, form)
            translation, alignment = edit.text, edit.align(alignment, (match.start, match.end))
            spans = [span and edit.moved(span) for span in spans]
            spans[index], ways[index] = edit.span, TermWay.PLACED
        applied = (
            AppliedTerm(match.entry.source, translation[slice(*span)], way)
            for match, span, way in zip(self.matches, spans, ways, strict=True)
            if span is not None
        )
        return translation, alignment, tuple(applied)

    def _spans(self, translation: str, alignment: Alignment) -> list[Interval | None]:
        """Returns where the translation of each term stands; None: nowhere."""
        units = UnitText(translation)
        candidates = [
            (index, span)
            for index in range(len(self.matches))
            if not self._is_traced(index)
            for span in self._find_forms(index, units)
        ]
        spans: list[Interval | None] = [None] * len(self.matches)
        placer = Placer(self.text, translation, alignment)
        self._claim(placer, candidates, spans)
        if None in spans:
            self._claim(placer, list(self._inflected(placer, translation, spans)), spans)
        return spans

    @property
    def _is_term(self) -> bool:
        """Whether the sentence is a term and nothing else: its translation is a form and nothing else."""
        first = self.matches[0]
        alone = len(self.matches) == 1 and self.text[first.start : first.end] == self.text.strip()
        return alone and not self._is_traced(0)

    def _is_traced(self, index: int) -> bool:
        """Returns whether the alignment alone finds a term."""
        return self.traced and self.matches[index].entry.translated

    def _claim(self, placer: Placer, candidates: Sequence[tuple[int, Interval]], spans: list[Interval | None]) -> None:
        """Gives each term without a span one of its candidates: longer ones first, then by attention."""
        scored = [
            (start - end, -placer.attention(_node(self.matches[index]), (start, end)), index, (start, end))
            for index, (start, end) in candidates
        ]
        for _, _, index, (start, end) in sorted(scored):
            if spans[index] is None and not any(span[0] < end and start < span[1] for span in filter(None, spans)):
                spans[index] = start, end

    def _find_forms(self, index: int, translation: UnitText) -> Iterator[Interval]:
        exact = self.matches[index].entry.match_case or not self.matches[index].entry.translated
        spans = (find_form(translation, form, match_case=exact) for form in self._forms(index))
        return iter(dict.fromkeys(chain.from_iterable(spans)))

    def _inflected(
        self, placer: Placer, translation: str, spans: Sequence[Interval | None]
    ) -> Iterator[tuple[int, Interval]]:
        """Yields inflections of the terms without a span where the alignment puts these terms."""
        for index, match in enumerate(self.matches):
            inflected = match.entry.translated and not match.entry.match_case and not self.traced
            if spans[index] is not None or not inflected:
                continue
            start, end = placer.find_interval(_node(match))
            for form in match.entry.targets:
                for found in _inflection(form).finditer(translation):
                    if found.start() < end and start < found.end():
                        yield index, found.span()

    def _forms(self, index: int) -> list[str]:
        match = self.matches[index]
        return list(match.entry.targets) if match.entry.translated else [self.text[match.start : match.end]]

    def _cased(self, index: int, form: str) -> str:
        """Returns a form for the start of a translation: with a capital if the text starts with one."""
        entry = self.matches[index].entry
        changes = self.text[:1].isupper() and entry.translated and not entry.match_case
        return form[0].upper() + form[1:] if changes else form


@lru_cache(4096)
def _inflection(form: str) -> re.Pattern[str]:
    """Returns an expression for a form with other endings of its long words."""
    words = r"\s+".join(map(_inflected_word, form.split()))
    return re.compile(rf"(?<!\w){words}(?!\w)", re.IGNORECASE)


def _inflected_word(word: str) -> str:
    stem = word[:-1] if word[-1:].lower() in _VOWELS else word
    if len(stem) < _MIN_LETTERS or not stem.isalpha():
        return re.escape(word)
    return rf"{re.escape(stem)}\w{{0,{_MAX_ENDING}}}"


def _node(match: Match) -> Node:
    return Node(MarkKind.KEPT, match.start, match.end)


def _whole_words(text: str, interval: Interval) -> Interval:
    """Returns the whole words of an interval, or the word after an empty one, or before it if it is the last."""
    start, end = interval
    units = [unit.span() for unit in UnitText(text).units]
    inside = [unit for unit in units if unit[0] < end and start < unit[1]]
    if not inside and units:
        inside = [next((unit for unit in units if unit[0] >= start), units[-1])]
    return (inside[0][0], inside[-1][1]) if inside else (start, end)


def _uncut(text: str, interval: Interval, taken: Sequence[Interval]) -> Interval:
    """Returns an interval without cut words, unless these are taken, or the interval is a gap."""
    start, end = interval
    whole = _whole_words(text, interval) if start < end else interval
    return interval if any(whole[0] < last and first < whole[1] for first, last in taken) else whole


def term_spans(translation: str, applied: Iterable[AppliedTerm]) -> list[Interval]:
    """Returns where a translation has its terms."""
    units = UnitText(translation)
    targets = dict.fromkeys(item.target for item in applied)
    return [span for target in targets for span in find_form(units, target, match_case=True)]


def join_terms(parts: Iterable[tuple[AppliedTerm, ...] | None]) -> tuple[AppliedTerm, ...] | None:
    """Returns the terms of all sentences of a text; None: there are none."""
    return tuple(chain.from_iterable(filter(None, parts))) or None


def follow_terms(applied: Iterable[AppliedTerm], terms: TextTerms) -> TextTerms:
    """Returns the terms of a text in the pivot language: what the terms of the client's text became there."""
    followed: dict[str, dict[Entry, None]] = {}
    for item in applied:
        (match, *_) = find_terms(item.source, terms.indexes)
        followed.setdefault(fold(item.target), {})[match.entry] = None
    index = TermIndex(Entry(word, (word,)) for word in followed)
    return TextTerms((index,), followed={word: tuple(entries) for word, entries in followed.items()})
