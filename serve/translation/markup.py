"""Markup and placeholders of requests: options from clients, and those of one sentence through its translation."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, get_args

from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.protect.alignment import Alignment, is_word
from dragoman.serve.protect.markup.elements import MarkupFormat, MarkupOptions
from dragoman.serve.protect.markup.references import Escaper
from dragoman.serve.protect.markup.sentences import MarkedSentence, has_letter_outside
from dragoman.serve.protect.placeholders.bare import without_placeholders
from dragoman.serve.protect.placeholders.check import Repair, forced_prefix, lost_nodes
from dragoman.serve.protect.placeholders.icu import MessageEscaper, is_message
from dragoman.serve.protect.placeholders.marks import Marker
from dragoman.serve.protect.placeholders.patterns import KINDS, Finder, PlaceholderKind
from dragoman.serve.protect.placeholders.render import Rendering
from dragoman.serve.protect.terms.sentence_terms import AppliedTerm, Prefix, term_spans
from dragoman.serve.translation.fields import shown

PLAIN = "text"
MAX_TAGS = 64
# Takes less than about a millisecond to read.
SMALL_MARKUP_BYTES = 1024
# Sentences whose tags take about a millisecond to place.
FEW_TAGGED_SENTENCES = 3
TAG_FIELDS = ("ignore_tags", "splitting_tags", "non_splitting_tags")
_FORMATS = get_args(MarkupFormat)
# Every kind of placeholder.
ALL = "all"
# All kinds, where the model has alignments; otherwise none.
AUTO = "auto"
_TAG_NAME = re.compile(r"[^\s<>&\"'/=]{1,128}")


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read texts whose translations need more than words.

    Attributes:
        placeholders: kinds of placeholders that stay; empty: none.
        rendering: of their sentences.
    """

    markup: MarkupOptions
    placeholders: frozenset[PlaceholderKind]
    rendering: Rendering

    def has_branches(self, text: str) -> bool:
        """Returns whether a text is a message of ICU."""
        return "brace" in self.placeholders and is_message(text)

    def marker(self, text: str) -> Marker:
        """Returns what marks the blocks of a text."""
        finder = Finder(self.placeholders)
        return Marker(finder, formatting=self.rendering.formatting, branching=self.has_branches(text))

    def escaper(self, text: str, escaper: Escaper) -> Escaper:
        """Returns what spells the translations of a text, given the escaper of its markup."""
        return MessageEscaper(escaper, doubled="''" in text) if self.has_branches(text) else escaper


def read_placeholders(names: Sequence[str], *, aligned: bool) -> frozenset[PlaceholderKind]:
    """Returns kinds of placeholders.

    Args:
        names: of kinds; `AUTO` among them means none without alignments.
        aligned: whether the model has alignments.

    Raises:
        InvalidRequestError: naming the first invalid kind.
    """
    for index, name in enumerate(names):
        if name not in (*KINDS, ALL, AUTO):
            expected = ", ".join((ALL, AUTO, *KINDS[:-1]))
            raise InvalidRequestError(f"placeholders[{index}]", f"{shown(name)}, expected {expected} or {KINDS[-1]}")
    every = ALL in names or (AUTO in names and aligned)
    return frozenset(kind for kind in KINDS if kind in names or every)


def read_markup(text_format: str, tags: Mapping[str, Sequence[str]]) -> MarkupOptions:
    """Returns format and tags of texts.

    Args:
        text_format: of the texts; empty: plain text.
        tags: names of tags, by the name of their field.

    Raises:
        InvalidRequestError: naming the first invalid field.
    """
    if text_format and text_format not in _FORMATS:
        raise InvalidRequestError("format", f"{shown(text_format)}, expected text, html or xml")
    for field, names in tags.items():
        if names and text_format in ("", PLAIN):
            raise InvalidRequestError(field, "expected none with format text")
        if len(names) > MAX_TAGS:
            raise InvalidRequestError(field, f"{len(names)} names, expected at most {MAX_TAGS}")
        for index, name in enumerate(names):
            if not _TAG_NAME.fullmatch(name):
                raise InvalidRequestError(f"{field}[{index}]", f"{shown(name)}, expected the name of a tag")
    if text_format == "xml":
        return MarkupOptions("xml", **{field: frozenset(names) for field, names in tags.items()})
    if text_format == "html":
        return MarkupOptions("html", **{field: frozenset(map(str.lower, names)) for field, names in tags.items()})
    return MarkupOptions("text")


class Aligned(Protocol):
    """A translation of one sentence."""

    @property
    def text(self) -> str:
        """Plain text."""

    @property
    def alignments(self) -> Sequence[Alignment] | None:
        """Its alignment by tokens."""

    @property
    def terms(self) -> Sequence[AppliedTerm] | None:
        """Its terms."""


@dataclass(frozen=True, slots=True)
class SentenceMarkup:
    """The tags and placeholders of one sentence."""

    sentence: MarkedSentence
    escaper: Escaper
    rendering: Rendering

    @property
    def has_tags(self) -> bool:
        """Whether the translation needs an alignment."""
        return bool(self.sentence.nodes)

    @property
    def grows(self) -> bool:
        """Whether the parts of a translation are known before all of it: it is only escaped."""
        return not self.has_tags and self.rendering == Rendering()

    def render(self, translation: Aligned) -> tuple[str, tuple[Repair, ...]]:
        """Returns the translation with its tags and placeholders, and those that the model lost."""
        if self.grows:
            return self.escaper.escape(translation.text), ()
        (alignment,) = translation.alignments or (Alignment((), (), (), ()),)
        terms = term_spans(translation.text, translation.terms or ())
        return self.rendering.render(self.sentence, translation.text, alignment, self.escaper, terms)

    def lacks(self, text: str) -> int:
        """Returns how many placeholders a translation lacks, or one if it has them and no words besides."""
        finder = self.rendering.finder
        if finder is None or not self.sentence.kept:
            return 0
        wordless = self.sentence.has_words and not has_letter_outside(text, finder.spans(text))
        return max(len(lost_nodes(self.sentence, text)), int(wordless))

    @property
    def without_placeholders(self) -> "SentenceMarkup | None":
        """The same without its placeholders, which are points; None: it has none, or no words besides them."""
        sentence = self.sentence
        if self.rendering.finder is None or not sentence.kept or not sentence.has_words:
            return None
        return replace(self, sentence=without_placeholders(sentence, self.escaper.escape))

    def prefix(self, text: str, alignment: Alignment) -> Prefix | None:
        """Returns the start of a translation that has the first lost placeholder of this one; None: it lacks none."""
        sentence = self.sentence
        if self.rendering.finder is None or not (nodes := lost_nodes(sentence, text)):
            return None
        (lost, *_) = nodes
        prefix = forced_prefix(sentence, text, alignment, lost)
        complete = not is_word(sentence.text[lost.end : lost.end + 1])
        return Prefix(prefix, sentence.text[lost.start : lost.end], complete)
