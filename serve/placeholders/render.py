"""Renders a sentence with its tags, placeholders and formatting."""

from collections.abc import Sequence
from dataclasses import dataclass

from serve.alignment import Alignment
from serve.markup.placement import Interval, place_tags
from serve.markup.references import Escaper
from serve.markup.sentences import MarkedSentence
from serve.placeholders.check import Repair, RepairWay, lost_nodes, without_surplus
from serve.placeholders.formatting import fit, format_as
from serve.placeholders.patterns import Finder


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
    ) -> tuple[str, tuple[Repair, ...]]:
        """Returns a translation with everything that its sentence has, and the placeholders that the model lost.

        Args:
            sentence: with its tags and placeholders.
            translation: plain text.
            alignment: of its tokens.
            escaper: for the text.
            terms: parts of the translation that no placeholder replaces.
        """
        if self.formatting:
            translation = format_as(sentence.text, translation)
            alignment = fit(alignment, len(translation))
        if self.finder is None:
            return place_tags(sentence, translation, alignment, escaper, terms), ()
        translation, alignment = without_surplus(sentence, translation, alignment, self.finder)
        lost = [sentence.text[node.start : node.end] for node in lost_nodes(sentence, translation)]
        rendered = place_tags(sentence, translation, alignment, escaper, terms)
        wanted = self.finder.texts(sentence.source)
        # Characters next to a placeholder may make another one of it.
        if self.finder.texts(rendered) != wanted:
            return sentence.source, tuple(Repair(text, RepairWay.UNTRANSLATED) for text in wanted)
        return rendered, tuple(Repair(text, RepairWay.PLACED) for text in lost)
