"""Sentence segmentation: turns a request for texts into one for their sentences, and joins the translations again.

A text is split at the ends of lines and of sentences (by `sentencex`, which has abbreviations of many languages). A
sentence that exceeds the model's limit is cut further at the least harmful place. White space and sentences without a
letter, such as `12:30`, are kept between the pieces: joined without translation, the pieces are the text, character by
character.

In a text with markup, the gaps between the sentences hold tags, and sentences are split inside of blocks.

In a stream, the sentences of a text are translated concurrently and delivered in order: the deltas of a sentence wait
until the sentences before it are complete.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, chain, islice, pairwise, zip_longest
from typing import Any, NamedTuple

from sentencex import segment

from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.protect.alignment import Alignment
from dragoman.serve.protect.markup.sentences import read_document
from dragoman.serve.protect.markup.tokens import MarkupError
from dragoman.serve.protect.placeholders.check import Repair, joined_repairs
from dragoman.serve.protect.terms.sentence_terms import join_terms
from dragoman.serve.search.hypothesis import FinishReason
from dragoman.serve.translation.blank import BLANK_CHARACTERS, has_letter, is_blank
from dragoman.serve.translation.fields import OPTIONS
from dragoman.serve.translation.markup import FEW_TAGGED_SENTENCES, SMALL_MARKUP_BYTES, SentenceMarkup
from dragoman.serve.translation.request import ModelRequest, TextRequest
from dragoman.serve.translation.response import Alternative, Translation, TranslationDelta, TranslationResponse
from dragoman.serve.translation.search_plan import SearchPlan

# Blank lines, or a line.
LINE = re.compile(rf"[{BLANK_CHARACTERS}]*[\r\n]|[^\r\n]+")
# Places to cut a sentence that is too long, best first: after a clause, after a comma, between words.
CUTS = (re.compile(r"(?<=[;:.!?\u2013\u2014)\]])\s+"), re.compile(r"(?<=,)\s+"), re.compile(r"\s+"))


# The translation of a text without a sentence.
NOTHING = Translation(
    text="",
    score=0.0,
    normalized_score=0.0,
    finish_reason=FinishReason.EOS,
    target_tokens=0,
    source_tokens=0,
    sentences=0,
)


class TooManySentencesError(Exception):
    """A text has more sentences than allowed."""


class SegmentedText(NamedTuple):
    """A text in sentences.

    Attributes:
        sentences: with a letter, without surrounding white space.
        gaps: text without letters before each sentence and after the last one; `len(sentences) + 1` strings.
        cut_sentences: number of sentences that were cut because they were too long.
        markup: of each sentence; empty for plain text.
    """

    sentences: tuple[str, ...]
    gaps: tuple[str, ...]
    cut_sentences: int
    markup: tuple[SentenceMarkup, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether the text is a single sentence without surrounding white space and without markup."""
        return self.gaps == ("", "") and not self.markup

    @classmethod
    def of(cls, text: str, language: str, fits: Callable[[str], bool], max_sentences: int) -> "SegmentedText":
        """Splits a text, and stops at the first sentence beyond the limit.

        Args:
            language: ISO 639-1 code; for an unknown one, rules of a related language or of English apply.
            fits: returns whether the model can read a sentence.
            max_sentences: the limit, after cuts.

        Raises:
            TooManySentencesError: if the text has more sentences.
        """
        found = _sentences(text, language)
        first = list(islice(found, 2))
        if len(first) == 1 and max_sentences and has_letter(bare := text.strip()) and fits(bare):
            head, tail = text.split(bare, 1)  # most texts
            return cls((bare,), (head, tail), 0)
        parts = list[str]()
        sentences = cut_sentences = 0
        for sentence in chain(first, found):
            before = len(parts)
            for part in _parts(sentence, fits):
                parts.append(part)
                sentences += has_letter(part)
                if sentences > max_sentences:
                    raise TooManySentencesError
            cut_sentences += len(parts) > before + 1
        return cls(*_separate(parts), cut_sentences)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Start and end of each sentence in the text, if it has no markup."""
        edges = list(accumulate(map(len, chain.from_iterable(zip(self.gaps, self.sentences, strict=False)))))
        return list(zip(edges[::2], edges[1::2], strict=True))

    def render(self, translations: Sequence[Alternative]) -> tuple[str, tuple[Repair, ...]]:
        """Joins one translation per sentence with the white space and the markup of the text.

        Returns:
            the text, and the placeholders that the model lost.
        """
        if not self.markup:
            return self.join([translation.text for translation in translations]), ()
        rendered = [markup.render(translation) for markup, translation in zip(self.markup, translations, strict=True)]
        repairs = map(joined_repairs, (one.repairs or () for one in translations), (more for _, more in rendered))
        return self.join([text for text, _ in rendered]), tuple(chain.from_iterable(repairs))

    def join(self, translations: Sequence[str]) -> str:
        """Joins one translation per sentence with the white space of the text."""
        translated = chain.from_iterable(zip(self.gaps, translations, strict=False))
        return "".join((*translated, self.gaps[-1]))

    def join_alignments(self, translations: Sequence[Alternative]) -> tuple[Alignment, ...] | None:
        """Returns the alignments of one translation per sentence, inside the text and the joined translation."""
        if self.markup:
            return None
        joined = list[Alignment]()
        target = 0
        for gap, (source, _), translation in zip(self.gaps, self.spans, translations, strict=False):
            if translation.alignments is None:
                return None
            target += len(gap)
            joined += (alignment.shifted(source, target) for alignment in translation.alignments)
            target += len(translation.text)
        return tuple(joined)


def _uncut(text: str) -> SegmentedText:
    return SegmentedText((text,), ("", ""), 0)


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
            offset = start + _cut_offset(bare)
            waiting += [part[offset:], part[:offset]]


def _cut_offset(sentence: str) -> int:
    """Returns where to cut: at the best kind of place that occurs, nearest to the middle."""
    middle = len(sentence) // 2
    for kind in CUTS:
        spans = [match.end() for match in kind.finditer(sentence)]
        if spans:
            return min(spans, key=lambda offset: abs(offset - middle))
    return middle


def _separate(parts: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the parts with letters without white space, and the text before, between and after them."""
    parts = list(parts)
    if len(parts) == 1 and has_letter(bare := parts[0].strip()):  # most texts
        before, after = parts[0].split(bare, 1)
        return (bare,), (before, after)
    text, spans = "", list[tuple[int, int]]()
    for part in parts:
        if has_letter(part):
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
        return [partial(self._advance, offset) for offset in range(len(self._waiting))]

    def _advance(self, offset: int, delta: TranslationDelta) -> list[TranslationDelta]:
        self._waiting[offset].append(delta)
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


class BlockSplitter:
    """Splits the blocks of a text with markup.

    Attributes:
        cut_sentences: as of a `SegmentedText`, for the blocks that were split last.
    """

    def __init__(self, split: Callable[[str, int], SegmentedText], max_sentences: int) -> None:
        """Stores a function that splits a block into at most a number of sentences, and the limit of all blocks."""
        self._split = split
        self._max_sentences = max_sentences
        self.cut_sentences = 0

    def __call__(self, blocks: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Returns start and end of the sentences of each block."""
        self.cut_sentences = 0
        room = self._max_sentences
        spans = list[list[tuple[int, int]]]()
        for block in blocks:
            segmented = self._split(block, room)
            self.cut_sentences += segmented.cut_sentences
            room -= len(segmented.sentences)
            spans.append(segmented.spans)
        return spans


def whole(text: str, max_sentences: int) -> SegmentedText:
    """Returns a block as one sentence without surrounding white space.

    Raises:
        TooManySentencesError: if there must be none.
    """
    sentences, gaps = _separate([text])
    if len(sentences) > max_sentences:
        raise TooManySentencesError
    return SegmentedText(sentences, gaps, 0)


class TextSplitter:
    """Splits the texts of one request one after the other, and stops at the first sentence beyond the limit."""

    def __init__(self, request: ModelRequest, fits: Callable[[str], bool], max_sentences: int) -> None:
        """Starts before the first text.

        Args:
            request: with the options that apply to its texts.
            fits: returns whether the model can read a sentence.
            max_sentences: the limit of all texts together, after cuts.
        """
        self._request = request
        self._fits = fits
        self._max_sentences = self._room = max_sentences

    def split(self, text: TextRequest) -> SegmentedText:
        """Splits the next text.

        Raises:
            InvalidRequestError: if there are too many sentences, if the text has several and an option allows one, or
                if its markup is malformed.
        """
        several = _several_refused(self._request.plan, text)
        most = self._room if several is None else min(1, self._room)
        try:
            segmented = self._segmented(text.text, most)
        except TooManySentencesError:
            raise (several if several and self._room else self._too_many()) from None
        except MarkupError as error:
            raise InvalidRequestError(text.text_field, str(error)) from error
        self._room -= len(segmented.sentences)
        return segmented

    def _segmented(self, text: str, max_sentences: int) -> SegmentedText:
        request = self._request
        sentences = partial(self._sentences, request.direction.source)
        reading = request.reading
        if reading is None:
            return sentences(text, max_sentences)
        split = BlockSplitter(sentences if request.split_sentences else whole, max_sentences)
        document = read_document(text, reading.markup, split, reading.marker(text))
        escaper = reading.escaper(text, document.escaper)
        return SegmentedText(
            tuple(sentence.text for sentence in document.sentences),
            document.gaps,
            split.cut_sentences,
            tuple(SentenceMarkup(sentence, escaper, reading.rendering) for sentence in document.sentences),
        )

    def _sentences(self, language: str, text: str, max_sentences: int) -> SegmentedText:
        return SegmentedText.of(text, language, self._fits, max_sentences)

    def _too_many(self) -> InvalidRequestError:
        rows = self._request.plan.options.rows
        each = f" of {rows} hypotheses each" if rows > 1 else ""
        return InvalidRequestError("text", f"expected at most {self._max_sentences} sentences{each} in total")


class SegmentedRequest(NamedTuple):
    """A request whose texts are split into sentences.

    Attributes:
        texts: in the order of the request.
        request: the request with sentences in place of texts.
        plain: whether each text is a plain sentence, so that the request is unchanged.
    """

    texts: tuple[SegmentedText, ...]
    request: ModelRequest
    plain: bool = False

    @classmethod
    def whole(cls, request: ModelRequest) -> "SegmentedRequest":
        """Returns the request with each unchanged text as one sentence, unless it has no letter."""
        texts = (text.text for text in request.texts)
        return cls.of(request, [_uncut(text) if has_letter(text) else SegmentedText((), (text,), 0) for text in texts])

    @classmethod
    def of(cls, request: ModelRequest, texts: Sequence[SegmentedText]) -> "SegmentedRequest":
        """Returns the request for the sentences of `texts`."""
        # Fast path: most requests are one plain sentence and stay unchanged.
        plain = all(text.plain for text in texts)
        if not plain:
            sentences = chain.from_iterable(map(_sentence_requests, request.texts, texts))
            request = request._replace(texts=tuple(sentences))
        return cls(tuple(texts), request, plain)

    def join(self, response: TranslationResponse) -> TranslationResponse:
        """Returns the response for the texts, given the response for the sentences."""
        if self.plain:
            return response
        return replace(response, translations=tuple(join() for join in self.joins(response)))

    def joins(self, response: TranslationResponse) -> list[Callable[[], Translation]]:
        """Returns a function per text that joins its translation."""
        translations = iter(response.translations)
        return [partial(_join, text, tuple(islice(translations, len(text.sentences)))) for text in self.texts]

    def with_terms(self, sentences: Iterable[TextRequest]) -> "SegmentedRequest":
        """Returns the request with these sentences in place of its own."""
        return self._replace(request=self.request._replace(texts=tuple(sentences)))

    def with_markup(self, markup: Iterable[SentenceMarkup | None]) -> "SegmentedRequest":
        """Returns the request with other markup of its sentences; None stands for that of plain text."""
        left = iter(markup)
        parts = ((text, tuple(filter(None, islice(left, len(text.sentences))))) for text in self.texts)
        return self._replace(texts=tuple(text._replace(markup=part) for text, part in parts))

    @property
    def slow_to_join(self) -> bool:
        """Whether joining takes long, because many sentences need more than escapes, or long ones."""
        if self.plain:
            return False
        sizes = [len(markup.sentence.source) for text in self.texts for markup in text.markup if not markup.grows]
        return len(sizes) > FEW_TAGGED_SENTENCES or sum(sizes) > SMALL_MARKUP_BYTES

    def empty_deltas(self) -> Iterator[TranslationDelta]:
        """Yields the only delta of each text without a sentence, such as an image in HTML."""
        for index, text in enumerate(self.texts):
            if not text.sentences:
                yield TranslationDelta(
                    text_index=index, text=text.join(()), target_tokens=0, finish_reason=FinishReason.EOS
                )

    def streams(self) -> list[Callable[[TranslationDelta], list[TranslationDelta]]]:
        """Returns a function per sentence that turns its deltas into deltas of its text."""
        streams = [SegmentStream(index, text) for index, text in enumerate(self.texts)]
        return list(chain.from_iterable(stream.listeners() for stream in streams))


def _sentence_requests(text: TextRequest, segmented: SegmentedText) -> Iterator[TextRequest]:
    for sentence, markup in zip_longest(segmented.sentences, segmented.markup):
        yield text._replace(text=sentence, markup=markup)


def _several_refused(plan: SearchPlan, text: TextRequest) -> InvalidRequestError | None:
    """Returns the error for a text of several sentences, if an option allows only one."""
    if not text.target_prefix and plan.options.hypotheses == 1:
        return None
    problem = f"{text.text_field} has several sentences, expected one; or set split_sentences to false"
    if text.target_prefix:
        return InvalidRequestError(text.prefix_field, problem)
    return InvalidRequestError(f"{OPTIONS}.hypotheses", f"{plan.options.hypotheses}: {problem}")


def _join(segmented: SegmentedText, translations: Sequence[Translation]) -> Translation:
    if not translations:
        return replace(NOTHING, text=segmented.join(()))
    first, *others = translations
    if not others:
        alternatives = tuple(
            replace(alternative, **_joined(segmented, [alternative])) for alternative in first.alternatives
        )
        return replace(first, **_joined(segmented, [first]), alternatives=alternatives)
    tokens = [translation.tokens for translation in translations if translation.tokens is not None]
    cut_off = any(translation.finish_reason is FinishReason.LENGTH for translation in translations)
    return replace(
        first,
        **_joined(segmented, translations),
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


def _joined(segmented: SegmentedText, translations: Sequence[Alternative]) -> dict[str, Any]:
    """Returns the fields of a joined translation that depend on its text."""
    text, repairs = segmented.render(translations)
    terms = join_terms(translation.terms for translation in translations)
    alignments = segmented.join_alignments(translations)
    return {"text": text, "alignments": alignments, "repairs": repairs or None, "terms": terms}
