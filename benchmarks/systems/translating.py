"""A translator as a system that takes turns: it translates all sentences together, or some of them one after the other.

What a turn is, how it is warmed up and what is counted is the same for all translators; they only translate. Called by
the modules that are the processes of an offline benchmark.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from benchmarks.harness.process import Work, work
from benchmarks.systems.batching import Batching
from benchmarks.systems.source_sentence import SourceSentence, read_sentences, spread

# Of hypotheses: they are compared by the mean log-probability of their tokens, in all systems.
LENGTH_PENALTY = 1.0
# A part of the sentences that is translated before the clock starts.
WARM_UP_SHARE = 10


class Translator(Protocol):
    """What translates."""

    def translate(self, sentences: Sequence[SourceSentence], beam_size: int, batching: Batching) -> list[Sequence[int]]:
        """Returns the target tokens of each sentence, the end token excluded.

        Args:
            sentences: in any order.
            beam_size: 1 is greedy search.
            batching: what to compute together, if it does not find out by itself.
        """


class TranslatingSystem:
    """Takes turns with a translator."""

    def __init__(self, translator: Translator, sentences: Path) -> None:
        self._translator = translator
        self._sentences = read_sentences(sentences)

    def plan(self, *, beam_size: int, batching: str, alone: int | None = None, output: str | None = None) -> Work:
        """Returns the work of translating; a part of it is done beforehand, to warm up.

        Args:
            beam_size: 1 is greedy search.
            batching: as `Batching.parse` reads it.
            alone: translate so many of the sentences, one after the other; None: all, together.
            output: file that gets the translations, a JSON list of lists of tokens.
        """
        sentences = self._sentences if alone is None else spread(self._sentences, alone)
        parts = [sentences] if alone is None else [[sentence] for sentence in sentences]
        chosen = Batching.parse(batching)
        for part in [spread(sentences, 1 + len(sentences) // WARM_UP_SHARE)] if alone is None else parts[:2]:
            self._translator.translate(part, beam_size, chosen)

        def translate(times: int) -> int:
            tokens = 0
            for _ in range(times):
                translations = [self._translator.translate(part, beam_size, chosen) for part in parts]
                tokens += sum(len(target) for translated in translations for target in translated)
            if output is not None:
                listed = [list(target) for translated in translations for target in translated]
                Path(output).write_text(json.dumps(listed), encoding="utf-8")
            return tokens

        return translate


def take_turns(make: Callable[..., Translator]) -> None:
    """Is the process of a translator.

    Args:
        make: makes it of the options; the path of the sentences is an option besides.
    """

    def load(sentences: str, **options: Any) -> TranslatingSystem:
        return TranslatingSystem(make(**options), Path(sentences))

    work(load)
