"""Markup of requests: options from clients, and the tags of one sentence on their way through the translation."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, get_args

from serve.alignment import Alignment
from serve.errors import InvalidRequestError
from serve.markup.elements import MarkupFormat, MarkupOptions
from serve.markup.placement import place_tags
from serve.markup.references import Escaper
from serve.markup.sentences import MarkedSentence
from serve.translation.fields import shown

PLAIN = "text"
MOST_TAGS = 64
# Takes less than about a millisecond to read.
SMALL_MARKUP_BYTES = 1024
# Sentences whose tags take about a millisecond to place.
FEW_TAGGED_SENTENCES = 3
TAG_FIELDS = ("ignore_tags", "splitting_tags", "non_splitting_tags")
_FORMATS = (PLAIN, *get_args(MarkupFormat))
_TAG_NAME = re.compile(r"[^\s<>&\"'/=]{1,128}")


def read_markup(text_format: str, tags: Mapping[str, Sequence[str]]) -> MarkupOptions | None:
    """Returns the options of markup; None: plain text.

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
        if len(names) > MOST_TAGS:
            raise InvalidRequestError(field, f"{len(names)} names, expected at most {MOST_TAGS}")
        for index, name in enumerate(names):
            if not _TAG_NAME.fullmatch(name):
                raise InvalidRequestError(f"{field}[{index}]", f"{shown(name)}, expected the name of a tag")
    if text_format == "xml":
        return MarkupOptions("xml", **{field: frozenset(names) for field, names in tags.items()})
    if text_format == "html":
        return MarkupOptions("html", **{field: frozenset(map(str.lower, names)) for field, names in tags.items()})
    return None


class Aligned(Protocol):
    """A translation of one sentence."""

    @property
    def text(self) -> str:
        """Plain text."""

    @property
    def alignments(self) -> Sequence[Alignment] | None:
        """Its alignment by tokens."""


@dataclass(frozen=True, slots=True)
class SentenceMarkup:
    """The tags of one sentence."""

    sentence: MarkedSentence
    escaper: Escaper

    @property
    def has_tags(self) -> bool:
        """Whether the translation needs an alignment: without tags inside, it is only escaped."""
        return bool(self.sentence.nodes)

    def render(self, translation: Aligned) -> str:
        """Returns the translation with its tags."""
        if not self.has_tags:
            return self.escaper.escape(translation.text)
        (alignment,) = translation.alignments or (Alignment((), (), (), ()),)
        return place_tags(self.sentence, translation.text, alignment, self.escaper)
