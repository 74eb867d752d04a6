"""The texts of one request as passages: the request for all their sentences, and one answer for each text again.

Pure functions of requests and answers; called by `serve.translation.translator`.

A text as sentences and the white space around them: what is translated one by one, and what stays as it is.

Models read sentences; people send paragraphs. A text is cut where a sentence ends (by `sentencex`, which knows the
abbreviations of many languages) and where a line does. A sentence that is longer than the model reads is cut further,
at the place that hurts least. Putting the pieces together again gives the text, character by character. Pure functions
of text; called by the translator.

The deltas of one text, made of those of its sentences, which are translated at the same time.

Clients read from left to right: what a sentence grows by waits until the sentences before it are complete. The white
space of the text goes along. Called by `serve.translation.segments`.
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
from serve.translation.request import SearchPlan, TextRequest, TranslationRequest
from serve.translation.response import Translation, TranslationDelta, TranslationResponse

LINE = re.compile(r"[^\r\n]+|[\r\n]+")
# Where an over-long sentence is cut, the best places first: after the end of a clause, after a comma, between words.
CUTS = (re.compile(r"(?<=[;:.!?\u2013\u2014)\]])\s+"), re.compile(r"(?<=,)\s+"), re.compile(r"\s+"))


@dataclass(frozen=True, slots=True)
class SegmentedText:
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
    def whole(cls, text: str) -> "SegmentedText":
        """Takes a text as it is for one sentence."""
        return cls((text,), ("", ""), 0)

    @classmethod
    def of(cls, text: str, language: str, fits: Callable[[str], bool]) -> "SegmentedText":
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


class SegmentStream:
    """The deltas of one text."""

    def __init__(self, text_index: int, passage: SegmentedText) -> None:
        """Waits for the first sentence.

        Args:
            text_index: of the text in the request.
            passage: the text.
        """
        self._text_index = text_index
        self._gaps = passage.gaps
        self._waiting = [deque[TranslationDelta]() for _ in passage.sentences]
        self._current = 0
        self._unsent = passage.gaps[0]
        self._complete_tokens = 0
        self._cut_off = False

    def listeners(self) -> list[Callable[[TranslationDelta], list[TranslationDelta]]]:
        """Returns for each sentence what turns its next delta into those of the text that can go out now."""
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


def split_text(request: TranslationRequest, text: TextRequest, fits: Callable[[str], bool]) -> SegmentedText:
    """Returns one text of a request as the request wants it cut.

    Raises:
        InvalidRequestError: if it is several sentences, and the request wants what only one sentence can have.
    """
    if not request.split_sentences:
        return SegmentedText.whole(text.text)
    passage = SegmentedText.of(text.text, request.source_language, fits)
    if len(passage.sentences) > 1:
        _check_several(request.plan, text, len(passage.sentences))
    return passage


@dataclass(frozen=True, slots=True)
class SegmentedRequest:
    """One passage for each text of a request.

    Attributes:
        request: the same request for the sentences of all passages, one after the other, as texts of their own.
    """

    passages: tuple[SegmentedText, ...]
    request: TranslationRequest

    @classmethod
    def of(cls, request: TranslationRequest, passages: Sequence[SegmentedText]) -> "SegmentedRequest":
        """Makes the request for the sentences.

        Args:
            request: for the texts.
            passages: each text as `split_text` cuts it.
        """
        # The usual request is one sentence, which needs no other; so does its answer below.
        if not all(passage.plain for passage in passages):
            texts = tuple(
                replace(text, text=sentence)
                for text, passage in zip(request.texts, passages, strict=True)
                for sentence in passage.sentences
            )
            request = replace(request, texts=texts)
        return cls(tuple(passages), request)

    def join(self, response: TranslationResponse) -> TranslationResponse:
        """Returns the answer for the texts, given that for the sentences."""
        if all(passage.plain for passage in self.passages):
            return response
        translations = iter(response.translations)
        joined = (_join(passage, tuple(islice(translations, len(passage.sentences)))) for passage in self.passages)
        return replace(response, translations=tuple(joined))

    def streams(self) -> list[Callable[[TranslationDelta], list[TranslationDelta]]]:
        """Returns for each sentence what turns its deltas into those of its text."""
        streams = [SegmentStream(index, passage) for index, passage in enumerate(self.passages)]
        return list(chain.from_iterable(stream.listeners() for stream in streams))


def _check_several(plan: SearchPlan, text: TextRequest, sentences: int) -> None:
    problem = f"{text.text_field} has {sentences} sentences, expected one, or split_sentences to be false"
    if text.target_prefix:
        raise InvalidRequestError(text.prefix_field, problem)
    if plan.options.hypotheses > 1:
        raise InvalidRequestError(f"{OPTIONS}.hypotheses", f"{plan.options.hypotheses}: {problem}")
    if plan.options.alignments:
        raise InvalidRequestError(f"{OPTIONS}.alignments", f"true: {problem}")


def _join(passage: SegmentedText, translations: Sequence[Translation]) -> Translation:
    text = passage.join([translation.text for translation in translations])
    first, *others = translations
    if not others:
        alternatives = (replace(each, text=passage.join([each.text])) for each in first.alternatives)
        return replace(first, text=text, alternatives=tuple(alternatives))
    tokens = [translation.tokens for translation in translations if translation.tokens is not None]
    cut_off = any(translation.finish_reason is FinishReason.LENGTH for translation in translations)
    return replace(
        first,
        text=text,
        score=sum(translation.score for translation in translations),
        normalized_score=sum(translation.normalized_score for translation in translations) / len(translations),
        finish_reason=FinishReason.LENGTH if cut_off else FinishReason.EOS,
        target_tokens=sum(translation.target_tokens for translation in translations),
        source_tokens=sum(translation.source_tokens for translation in translations),
        tokens=tuple(chain.from_iterable(tokens)) if tokens else None,
        cached=None if first.cached is None else all(translation.cached for translation in translations),
        sentences=len(translations),
        cut_sentences=passage.cut_sentences,
    )
