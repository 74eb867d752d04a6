"""Renders a sentence with its tags, placeholders and formatting."""

from collections.abc import Sequence
from dataclasses import dataclass

from dragoman.serve.protect.alignment import Alignment
from dragoman.serve.protect.markup.placement import Interval
from dragoman.serve.protect.markup.references import Escaper
from dragoman.serve.protect.markup.sentences import MarkedSentence, has_letter_outside
from dragoman.serve.protect.markup.tags import place_tags
from dragoman.serve.protect.placeholders import check
from dragoman.serve.protect.placeholders.formatting import fit, format_as
from dragoman.serve.protect.placeholders.patterns import Finder

# A translation is at most this many times as long as its text, and the other way around.
MAX_LENGTH_RATIO = 4


@dataclass(frozen=True, slots=True)
class Rendering:
    """How to render the sentences of a text.

    Attributes:
        finder: of the placeholders that a translation must have; None: of none.
        formatting: whether letter case and final punctuation follow the text.
    """

    finder: Finder | None = None
    formatting: bool = False

    def render(
        self,
        sentence: MarkedSentence,
        translation: str,
        alignment: Alignment,
        escaper: Escaper,
        terms: Sequence[Interval] = (),
    ) -> tuple[str, tuple[check.Repair, ...]]:
        """Returns a translation with everything that its sentence has, and the placeholders that the model lost.

        Args:
            sentence: with its tags and placeholders.
            translation: plain text.
            terms: parts of the translation that no placeholder replaces.
        """
        if self.formatting:
            translation = format_as(sentence.text, translation)
            alignment = fit(alignment, len(translation))
        if self.finder is None:
            return place_tags(sentence, translation, alignment, escaper, terms), ()
        translation, alignment = check.with_own_placeholders(sentence, translation, alignment, self.finder)
        lost = [sentence.text[node.start : node.end] for node in check.lost_nodes(sentence, translation)]
        rendered = place_tags(sentence, translation, alignment, escaper, terms)
        if self._is_valid(sentence, translation, rendered, self.finder):
            return rendered, tuple(check.Repair(text, check.RepairWay.PLACED) for text in lost)
        wanted = self.finder.texts(sentence.source)
        return sentence.source, tuple(check.Repair(text, check.RepairWay.UNTRANSLATED) for text in wanted)

    @staticmethod
    def _is_valid(sentence: MarkedSentence, translation: str, rendered: str, finder: Finder) -> bool:
        """Returns whether a translation of a sentence with placeholders has all of them, and words if that has some."""
        # Characters next to a placeholder may make another one of it.
        if not check.has_same_placeholders(sentence.source, rendered, finder):
            return False
        keeps_words = not sentence.has_words or has_letter_outside(translation, finder.spans(translation))
        return not finder.texts(sentence.source) or (keeps_words and _is_similar(sentence.source, rendered))


def _is_similar(source: str, translation: str) -> bool:
    """Returns whether a translation may have its length."""
    return len(source) <= MAX_LENGTH_RATIO * len(translation) and len(translation) <= MAX_LENGTH_RATIO * len(source)
