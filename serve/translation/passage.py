"""A text as sentences and the white space around them: what is translated one by one, and what stays as it is.

Models read sentences; people send paragraphs. A text is cut where a sentence ends (by `sentencex`, which knows the
abbreviations of many languages) and where a line does. A sentence that is longer than the model reads is cut further,
at the place that hurts least. Putting the pieces together again gives the text, character by character. Pure functions
of text; called by the translator.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from sentencex import segment

LINE = re.compile(r"[^\r\n]+|[\r\n]+")
# Where an over-long sentence is cut, the best places first: after the end of a clause, after a comma, between words.
CUTS = (re.compile(r"(?<=[;:.!?\u2013\u2014)\]])\s+"), re.compile(r"(?<=,)\s+"), re.compile(r"\s+"))


@dataclass(frozen=True, slots=True)
class Passage:
    """A text in pieces.

    Attributes:
        sentences: what to translate, without white space around it; none of them is blank.
        gaps: the white space before each sentence, and behind the last one: one more than there are sentences.
        cut_sentences: how many sentences of the text were too long and had to be cut.
    """

    sentences: tuple[str, ...]
    gaps: tuple[str, ...]
    cut_sentences: int

    @property
    def plain(self) -> bool:
        """Whether the text is one sentence and nothing else."""
        return self.gaps == ("", "")

    @classmethod
    def whole(cls, text: str) -> "Passage":
        """Takes a text as it is for one sentence."""
        return cls((text,), ("", ""), 0)

    @classmethod
    def of(cls, text: str, language: str, fits: Callable[[str], bool]) -> "Passage":
        """Cuts a text.

        Args:
            text: any text.
            language: ISO 639-1 code; of an unknown one, the rules of a related language or of English.
            fits: whether the model reads a sentence of that length.
        """
        whole = list(chain.from_iterable(_sentences(line, language) for line in LINE.findall(text)))
        parts = [_parts(sentence, fits) for sentence in whole]
        sentences, gaps = _separate(chain.from_iterable(parts))
        return cls(sentences, gaps, sum(len(each) > 1 for each in parts))

    def join(self, translations: Sequence[str]) -> str:
        """Returns one translation for each sentence, with the white space of the text around them."""
        translated = chain.from_iterable(zip(self.gaps, translations, strict=False))
        return "".join((*translated, self.gaps[-1]))


def _sentences(line: str, language: str) -> list[str]:
    """Returns the sentences of one line, each with the white space behind it."""
    return segment(language, line) if line.strip() else [line]


def _parts(sentence: str, fits: Callable[[str], bool]) -> list[str]:
    """Returns parts of a sentence that fit, or that are single characters."""
    waiting, parts = [sentence], list[str]()
    while waiting:
        part = waiting.pop()
        bare = part.strip()
        if len(bare) < 2 or fits(bare):  # noqa: PLR2004 - what is one character cannot be cut
            parts.append(part)
        else:
            start = len(part) - len(part.lstrip())
            place = start + _place(bare)
            waiting += [part[place:], part[:place]]
    return parts


def _place(sentence: str) -> int:
    """Returns where to cut: the best kind of place there is, and of those the one that is nearest to the middle."""
    middle = len(sentence) // 2
    for kind in CUTS:
        places = [match.end() for match in kind.finditer(sentence)]
        if places:
            return min(places, key=lambda place: abs(place - middle))
    return middle


def _separate(parts: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the bare parts, and the white space before, between and behind them."""
    text, spans = "", list[tuple[int, int]]()
    for part in parts:
        bare = part.strip()
        if bare:
            start = len(text) + part.index(bare)
            spans.append((start, start + len(bare)))
        text += part
    edges = [(0, 0), *spans, (len(text), len(text))]
    gaps = tuple(text[end:start] for (_, end), (start, _) in pairwise(edges))
    return tuple(text[start:end] for start, end in spans), gaps
