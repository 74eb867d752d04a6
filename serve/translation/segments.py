"""Sentence segmentation: turns a request for texts into one for their sentences, and joins the translations again.

A text is split at the ends of lines and of sentences (by `sentencex`, which has abbreviations of many languages). A
sentence that exceeds the model's limit is cut further at the least harmful place. The white space between the pieces is
kept: joined without translation, the pieces are the text, character by character.

In a stream, the sentences of a text are translated concurrently and delivered in order: the deltas of a sentence wait
until the sentences before it are complete.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, pairwise

from sentencex import segment

from serve.errors import InvalidRequestError
from serve.search.hypothesis import FinishReason
from serve.translation.fields import OPTIONS
from serve.translation.request import ModelRequest, SearchPlan, TextRequest
from serve.translation.response import Translation, TranslationDelta, TranslationResponse

LINE = re.compile(r"[^\r\n]+|[\r\n]+")
# Places to cut a sentence that is too long, best first: after a clause, after a comma, between words.
CUTS = (re.compile(r"(?<=[;:.!?\u2013\u2014)\]])\s+"), re.compile(r"(?<=,)\s+"), re.compile(r"\s+"))


@dataclass(frozen=True, slots=True)
class SegmentedText:
    """A text in sentences.

    Attributes:
        sentences: not blank, without surrounding white space.
        gaps: white space before each sentence and after the last one; `len(sentences) + 1` strings.
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
    def whole(cls, text: str) -> "SegmentedText":
        """Returns the unchanged text as one sentence."""
        return cls((text,), ("", ""), 0)

    @classmethod
    def of(cls, text: str, language: str, fits: Callable[[str], bool]) -> "SegmentedText":
        """Splits a text.

        Args:
            text: any text.
            language: ISO 639-1 code; for an unknown one, rules of a related language or of English apply.
            fits: returns whether the model can read a sentence.
        """
        whole = list(chain.from_iterable(_sentences(line, language) for line in LINE.findall(text)))
        parts = [_parts(sentence, fits) for sentence in whole]
        sentences, gaps = _separate(chain.from_iterable(parts))
        return cls(sentences, gaps, sum(len(each) > 1 for each in parts))

    def join(self, translations: Sequence[str]) -> str:
        """Joins one translation per sentence with the white space of the text."""
        translated = chain.from_iterable(zip(self.gaps, translations, strict=False))
        return "".join((*translated, self.gaps[-1]))


def _sentences(line: str, language: str) -> list[str]:
    """Returns the sentences of one line, each with its trailing white space."""
    return segment(language, line) if line.strip() else [line]


def _parts(sentence: str, fits: Callable[[str], bool]) -> list[str]:
    """Returns parts of a sentence that fit, or are single characters."""
    waiting, parts = [sentence], list[str]()
    while waiting:
        part = waiting.pop()
        bare = part.strip()
        if len(bare) < 2 or fits(bare):  # noqa: PLR2004 - a single character cannot be cut
            parts.append(part)
        else:
            start = len(part) - len(part.lstrip())
            place = start + _place(bare)
            waiting += [part[place:], part[:place]]
    return parts


def _place(sentence: str) -> int:
    """Returns where to cut: at the best kind of place that occurs, nearest to the middle."""
    middle = len(sentence) // 2
    for kind in CUTS:
        places = [match.end() for match in kind.finditer(sentence)]
        if places:
            return min(places, key=lambda place: abs(place - middle))
    return middle


def _separate(parts: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the parts without white space, and the white space before, between and after them."""
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


def split_text(request: ModelRequest, text: TextRequest, fits: Callable[[str], bool]) -> SegmentedText:
    """Splits one text as the request specifies.

    Raises:
        InvalidRequestError: if the text has several sentences and an option allows only one.
    """
    if not request.split_sentences:
        return SegmentedText.whole(text.text)
    segmented = SegmentedText.of(text.text, request.direction.source, fits)
    if len(segmented.sentences) > 1:
        _check_several(request.plan, text, len(segmented.sentences))
    return segmented


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
    def of(cls, request: ModelRequest, texts: Sequence[SegmentedText]) -> "SegmentedRequest":
        """Returns the request for the sentences of `texts`, which `split_text` returned."""
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


def _check_several(plan: SearchPlan, text: TextRequest, sentences: int) -> None:
    problem = f"{text.text_field} has {sentences} sentences, expected one; or set split_sentences to false"
    if text.target_prefix:
        raise InvalidRequestError(text.prefix_field, problem)
    if plan.options.hypotheses > 1:
        raise InvalidRequestError(f"{OPTIONS}.hypotheses", f"{plan.options.hypotheses}: {problem}")
    if plan.options.alignments:
        raise InvalidRequestError(f"{OPTIONS}.alignments", f"true: {problem}")


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
