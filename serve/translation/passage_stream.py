"""The deltas of one text, made of those of its sentences, which are translated at the same time.

Clients read from left to right: what a sentence grows by waits until the sentences before it are complete. The white
space of the text goes along. Called by `serve.translation.segments`.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from serve.search.hypothesis import FinishReason
from serve.translation.passage import Passage
from serve.translation.response import TranslationDelta


class PassageStream:
    """The deltas of one text."""

    def __init__(self, text_index: int, passage: Passage) -> None:
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
