"""Sentence segmentation: turns a request for texts into one for their sentences, and joins the translations again.

A text is split at the ends of lines and of sentences (by `sentencex`, which has abbreviations of many languages). A
sentence that exceeds the model's limit is cut further at the least harmful place. White space and blank sentences
between the pieces are kept: joined without translation, the pieces are the text, character by character.

In a stream, the sentences of a text are translated concurrently and delivered in order: the deltas of a sentence wait
until the sentences before it are complete.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, pairwise

from sentencex import segment

from serve.errors import InvalidRequestError
from serve.search.hypothesis import FinishReason
from serve.translation.blank import BLANK_CHARACTERS, is_blank
from serve.translation.fields import OPTIONS
from serve.translation.request import ModelRequest, SearchPlan, TextRequest
from serve.translation.response import Translation, TranslationDelta, TranslationResponse

# Blank lines, or a line.
LINE = re.compile(rf"[{BLANK_CHARACTERS}]*[\r\n]|[^\r\n]+")
# Places to cut a sentence that is too long, best first: after a clause, after a comma, between words.
CUTS = (re.compile(r"(?<=[;:.!?\u2013\u2014)\]])\s+"), re.compile(r"(?<=,)\s+"), re.compile(r"\s+"))


class TooManySentencesError(Exception):
    """A text has more sentences than allowed."""


@dataclass(frozen=True, slots=True)
class SegmentedText:
    """A text in sentences.

    Attributes:
        sentences: not blank, without surrounding white space.
        gaps: blank text before each sentence and after the last one; `len(sentences) + 1` strings.
        cut_sentences: number of sentences that were cut because they were too long.
    """

    sentences: tuple[str, ...]
    gaps: tuple[str, ...]
    cut_sentences: int

    @property
    def plain(self) -> bool:
        """Whether the text is a single sentence without surrounding white space."""
        return self.gaps == ("", "")

    @classmethod
    def of(cls, text: str, language: str, fits: Callable[[str], bool], most_sentences: int) -> "SegmentedText":
        """Splits a text, and stops at the first sentence beyond the limit.

        Args:
            text: any text.
            language: ISO 639-1 code; for an unknown one, rules of a related language or of English apply.
            fits: returns whether the model can read a sentence.
            most_sentences: the limit, after cuts.

        Raises:
            TooManySentencesError: if the text has more sentences.
        """
        parts = list[str]()
        sentences = cut_sentences = 0
        for sentence in _sentences(text, language):
            before = len(parts)
            for part in _parts(sentence, fits):
                parts.append(part)
                sentences += not is_blank(part)
                if sentences > most_sentences:
                    raise TooManySentencesError
            cut_sentences += len(parts) > before + 1
        return cls(*_separate(parts), cut_sentences)

    def join(self, translations: Sequence[str]) -> str:
        """Joins one translation per sentence with the white space of the text."""
        translated = chain.from_iterable(zip(self.gaps, translations, strict=False))
        return "".join((*translated, self.gaps[-1]))


def _sentences(text: str, language: str) -> Iterator[str]:
    """Yields the sentences of a text, each with its trailing white space, and the blank parts between its lines."""
    for match in LINE.finditer(text):
        line = match[0]
        yield from (line,) if is_blank(line) else segment(language, line)


def _parts(sentence: str, fits: Callable[[str], bool]) -> Iterator[str]:
    """Yields parts of a sentence that fit, or are single characters."""
    waiting = [sentence]
    while waiting:
        part = waiting.pop()
        bare = part.strip()
        if len(bare) < 2 or fits(bare):  # noqa: PLR2004 - a single character cannot be cut
            yield part
        else:
            start = len(part) - len(part.lstrip())
            place = start + _place(bare)
            waiting += [part[place:], part[:place]]


def _place(sentence: str) -> int:
    """Returns where to cut: at the best kind of place that occurs, nearest to the middle."""
    middle = len(sentence) // 2
    for kind in CUTS:
        places = [match.end() for match in kind.finditer(sentence)]
        if places:
            return min(places, key=lambda place: abs(place - middle))
    return middle


def _separate(parts: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the visible parts without white space, and the blank text before, between and after them."""
    text, spans = "", list[tuple[int, int]]()
    for part in parts:
        if not is_blank(part):
            bare = part.strip()
            start = len(text) + part.index(bare)
            spans.append((start, start + len(bare)))
        text += part
    edges = [(0, 0), *spans, (len(text), len(text))]
    gaps = tuple(text[end:start] for (_, end), (start, _) in pairwise(edges))
    return tuple(text[start:end] for start, end in spans), gaps


class SegmentStream:
    """Orders the deltas of the sentences of one text."""

    def __init__(self, text_index: int, text: SegmentedText) -> None:
        self._text_index = text_index
        self._gaps = text.gaps
        self._waiting = [deque[TranslationDelta]() for _ in text.sentences]
        self._current = 0
        self._unsent = text.gaps[0]
        self._complete_tokens = 0
        self._cut_off = False

    def listeners(self) -> list[Callable[[TranslationDelta], list[TranslationDelta]]]:
        """Returns a function per sentence that takes its next delta and returns the deltas to send."""
        return [partial(self._advance, place) for place in range(len(self._waiting))]

    def _advance(self, place: int, delta: TranslationDelta) -> list[TranslationDelta]:
        self._waiting[place].append(delta)
        ready = list[TranslationDelta]()
        while self._current < len(self._waiting) and self._waiting[self._current]:
            delta = self._waiting[self._current].popleft()
            self._unsent += delta.text
            if delta.finish_reason is not None:
                self._end_sentence(delta)
            over = self._current == len(self._waiting)
            if over or (delta.text and self._unsent):
                ready.append(self._send(delta, over=over))
        return ready

    def _end_sentence(self, delta: TranslationDelta) -> None:
        self._current += 1
        self._complete_tokens += delta.target_tokens
        self._cut_off |= delta.finish_reason is FinishReason.LENGTH
        self._unsent += self._gaps[self._current]

    def _send(self, delta: TranslationDelta, *, over: bool) -> TranslationDelta:
        text, self._unsent = self._unsent, ""
        within = 0 if delta.finish_reason is not None else delta.target_tokens
        reason = FinishReason.LENGTH if self._cut_off else FinishReason.EOS
        return replace(
            delta,
            text_index=self._text_index,
            text=text,
            target_tokens=self._complete_tokens + within,
            finish_reason=reason if over else None,
        )


class TextSplitter:
    """Splits the texts of one request one after the other, and stops at the first sentence beyond the limit."""

    def __init__(self, request: ModelRequest, fits: Callable[[str], bool], most_sentences: int) -> None:
        """Starts before the first text.

        Args:
            request: with the options that apply to its texts.
            fits: returns whether the model can read a sentence.
            most_sentences: the limit of all texts together, after cuts.
        """
        self._request = request
        self._fits = fits
        self._most_sentences = self._room = most_sentences

    def split(self, text: TextRequest) -> SegmentedText:
        """Splits the next text.

        Raises:
            InvalidRequestError: if there are too many sentences, or if the text has several and an option allows one.
        """
        several = _several_refused(self._request.plan, text)
        most = self._room if several is None else min(1, self._room)
        try:
            segmented = SegmentedText.of(text.text, self._request.direction.source, self._fits, most)
        except TooManySentencesError:
            raise (several if several and self._room else self._too_many()) from None
        self._room -= len(segmented.sentences)
        return segmented

    def _too_many(self) -> InvalidRequestError:
        rows = self._request.plan.options.rows
        each = f" of {rows} hypotheses each" if rows > 1 else ""
        return InvalidRequestError("text", f"expected at most {self._most_sentences} sentences{each} in total")


@dataclass(frozen=True, slots=True)
class SegmentedRequest:
    """A request whose texts are split into sentences.

    Attributes:
        texts: in the order of the request.
        request: the request with sentences in place of texts.
    """

    texts: tuple[SegmentedText, ...]
    request: ModelRequest

    @classmethod
    def whole(cls, request: ModelRequest) -> "SegmentedRequest":
        """Returns the request with each unchanged text as one sentence."""
        return cls(tuple(SegmentedText((text.text,), ("", ""), 0) for text in request.texts), request)

    @classmethod
    def of(cls, request: ModelRequest, texts: Sequence[SegmentedText]) -> "SegmentedRequest":
        """Returns the request for the sentences of `texts`."""
        # Fast path: most requests are one plain sentence and stay unchanged.
        if not all(text.plain for text in texts):
            sentences = tuple(
                replace(text, text=sentence)
                for text, segmented in zip(request.texts, texts, strict=True)
                for sentence in segmented.sentences
            )
            request = replace(request, texts=sentences)
        return cls(tuple(texts), request)

    def join(self, response: TranslationResponse) -> TranslationResponse:
        """Returns the response for the texts, given the response for the sentences."""
        if all(text.plain for text in self.texts):
            return response
        translations = iter(response.translations)
        joined = (_join(text, tuple(islice(translations, len(text.sentences)))) for text in self.texts)
        return replace(response, translations=tuple(joined))

    def streams(self) -> list[Callable[[TranslationDelta], list[TranslationDelta]]]:
        """Returns a function per sentence that turns its deltas into deltas of its text."""
        streams = [SegmentStream(index, text) for index, text in enumerate(self.texts)]
        return list(chain.from_iterable(stream.listeners() for stream in streams))


def _several_refused(plan: SearchPlan, text: TextRequest) -> InvalidRequestError | None:
    """Returns the error for a text of several sentences, if an option allows only one."""
    problem = f"{text.text_field} has several sentences, expected one; or set split_sentences to false"
    if text.target_prefix:
        return InvalidRequestError(text.prefix_field, problem)
    if plan.options.hypotheses > 1:
        return InvalidRequestError(f"{OPTIONS}.hypotheses", f"{plan.options.hypotheses}: {problem}")
    if plan.options.alignments:
        return InvalidRequestError(f"{OPTIONS}.alignments", f"true: {problem}")
    return None


def _join(segmented: SegmentedText, translations: Sequence[Translation]) -> Translation:
    joined = segmented.join([translation.text for translation in translations])
    first, *others = translations
    if not others:
        alternatives = (replace(each, text=segmented.join([each.text])) for each in first.alternatives)
        return replace(first, text=joined, alternatives=tuple(alternatives))
    tokens = [translation.tokens for translation in translations if translation.tokens is not None]
    cut_off = any(translation.finish_reason is FinishReason.LENGTH for translation in translations)
    return replace(
        first,
        text=joined,
        score=sum(translation.score for translation in translations),
        normalized_score=sum(translation.normalized_score for translation in translations) / len(translations),
        finish_reason=FinishReason.LENGTH if cut_off else FinishReason.EOS,
        target_tokens=sum(translation.target_tokens for translation in translations),
        source_tokens=sum(translation.source_tokens for translation in translations),
        tokens=tuple(chain.from_iterable(tokens)) if tokens else None,
        cached=None if first.cached is None else all(translation.cached for translation in translations),
        sentences=len(translations),
        cut_sentences=segmented.cut_sentences,
    )
