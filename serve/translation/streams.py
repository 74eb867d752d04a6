"""Streams: the deltas of the texts of a job, made of the tokens and hypotheses of its sentences.

The sentences of a text are translated concurrently and delivered in order: the deltas of a sentence wait until the
sentences before it are complete.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from dragoman.model.tokenizer.tokenizer import TextTokenizer
from dragoman.serve.search.hypothesis import FinishReason, Hypothesis
from dragoman.serve.translation.job import Job, SegmentedText, Sentence
from dragoman.serve.translation.renderer import Renderer
from dragoman.serve.translation.response import TranslationDelta, TranslationResponse
from dragoman.serve.translation.submission import Submission

# The decoded form of an incomplete character in byte tokens; the next token may complete it.
INCOMPLETE = "\ufffd"


class TextStream:
    """The text of a growing translation, in final pieces.

    Text that a later token may change is held back: incomplete characters, and trailing white space, which some
    tokenizers drop. The tokenizer must decode from left to right: further tokens change only the end of the text.
    """

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._sent_characters = 0

    def grow(self, target_ids: Sequence[int]) -> str:
        """Returns the new final text, given all tokens so far; may be empty."""
        return self.end(self._tokenizer.decode(target_ids).rstrip(INCOMPLETE).rstrip())

    def end(self, text: str) -> str:
        """Returns the rest of the whole text."""
        new = text[self._sent_characters :]
        self._sent_characters += len(new)
        return new


class OrderedText:
    """Orders the deltas of the sentences of one text."""

    def __init__(self, text_index: int, text: SegmentedText) -> None:
        self._text_index = text_index
        self._gaps = text.gaps
        self.sentences = len(text.sentences)
        self._waiting = [deque[TranslationDelta]() for _ in text.sentences]
        self._current = 0
        self._unsent = text.gaps[0]
        self._complete_tokens = 0
        self._cut_off = False

    def advance(self, offset: int, delta: TranslationDelta) -> list[TranslationDelta]:
        """Takes the next delta of a sentence, and returns the deltas to send."""
        self._waiting[offset].append(delta)
        ready = list[TranslationDelta]()
        while self._current < len(self._waiting) and self._waiting[self._current]:
            delta = self._waiting[self._current].popleft()
            self._unsent += delta.text
            if delta.finish_reason is not None:
                self._current += 1
                self._complete_tokens += delta.target_tokens
                self._cut_off |= delta.finish_reason is FinishReason.LENGTH
                self._unsent += self._gaps[self._current]
            over = self._current == len(self._waiting)
            if over or (delta.text and self._unsent):
                ready.append(self._send(delta, over=over))
        return ready

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


@dataclass(slots=True)
class _GrowingSentence:
    """A sentence, its text so far, and what orders its deltas."""

    sentence: Sentence
    text: TextStream
    advance: Callable[[TranslationDelta], list[TranslationDelta]]


class JobStream:
    """The deltas of a job whose cached sentences are found: first the known ones, then those of the other sentences."""

    def __init__(self, job: Job, tokenizer: TextTokenizer, renderer: Renderer) -> None:
        self._job = job
        self._tokenizer = tokenizer
        self._renderer = renderer
        texts = [OrderedText(number, cut) for number, cut in enumerate(job.cuts)]
        places = [partial(text.advance, offset) for text in texts for offset in range(text.sentences)]
        sentences = [
            _GrowingSentence(sentence, TextStream(tokenizer), place)
            for sentence, place in zip(job.sentences, places, strict=True)
        ]
        self._cached = [growing for growing in sentences if growing.sentence.hypotheses]
        self._growing = [growing for growing in sentences if not growing.sentence.hypotheses]

    def known(self) -> Iterator[TranslationDelta]:
        """Yields the deltas of texts without a sentence, such as an image in HTML, and of cached sentences."""
        for number, cut in enumerate(self._job.cuts):
            if not cut.sentences:
                reason = FinishReason.EOS
                yield TranslationDelta(text_index=number, text=cut.join(()), target_tokens=0, finish_reason=reason)
        for cached in self._cached:
            yield from self._end(cached, cached.sentence.hypotheses)

    def updates(self, submission: Submission) -> Iterator[list[TranslationDelta]]:
        """Yields the deltas to send after each new token or end of a searched sentence."""
        for number, ended in submission.updates():
            growing = self._growing[number]
            if ended:
                yield self._end(growing, submission.sequences[number].hypotheses)
            else:
                yield self._grow(growing, submission.tokens[number].copy())  # the engine appends concurrently

    def _grow(self, growing: _GrowingSentence, target_ids: Sequence[int]) -> list[TranslationDelta]:
        markup = growing.sentence.markup
        if markup is not None and not markup.grows:
            return []  # tags may enclose any part of the translation
        text = growing.text.grow(target_ids)
        if not text:
            return []
        escaped = text if markup is None else markup.escaper.escape(text)
        return growing.advance(TranslationDelta(text_index=0, text=escaped, target_tokens=len(target_ids)))

    def _end(self, growing: _GrowingSentence, hypotheses: Sequence[Hypothesis]) -> list[TranslationDelta]:
        best, markup = hypotheses[0], growing.sentence.markup
        if markup is not None and not markup.grows:
            text, _ = markup.render(self._renderer.alternative(self._job, growing.sentence, best))
        else:
            text = growing.text.end(self._tokenizer.decode(best.target_ids))
            text = text if markup is None else markup.escaper.escape(text)
        tokens, reason = len(best.target_ids), best.finish_reason
        return growing.advance(TranslationDelta(text_index=0, text=text, target_tokens=tokens, finish_reason=reason))


def whole_deltas(response: TranslationResponse) -> Iterator[TranslationDelta]:
    """Yields a single delta per text of a response."""
    for index, translation in enumerate(response.translations):
        yield TranslationDelta(
            text_index=index,
            text=translation.text,
            target_tokens=translation.target_tokens,
            finish_reason=translation.finish_reason,
        )
