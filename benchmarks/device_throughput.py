"""The same sentences translated by the service's engine and by PyTorch, so many at once: tokens and seconds.

The engine is that of the server, stepped in the calling thread, and starts a sentence as soon as another has ended;
PyTorch gets whole batches, and lets go of rows that have ended. Both search to the natural end of each translation.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from export.verify.stepped_engine import SteppedEngine
from serve.runtime.model_sessions import ModelSessions
from serve.scheduler.sequence import Wish
from serve.search.options import SearchOptions

LENGTH_PENALTY = 1.0


class Run(NamedTuple):
    """One run over all sentences.

    Attributes:
        seconds: it took.
        targets: target tokens of each sentence, the end token excluded.
    """

    seconds: float
    targets: list[tuple[int, ...]]

    @property
    def tokens_per_second(self) -> float:
        """Target tokens, end tokens included."""
        return sum(len(target) + 1 for target in self.targets) / self.seconds


class Translates(Protocol):
    """A system that is measured."""

    def __call__(self, sources: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Returns the target tokens of each source."""


def engine_of(sessions: ModelSessions, together: int, beam_size: int) -> Translates:
    """Returns the service's engine with slots for so many translations at once."""
    engine = SteppedEngine(sessions, together * beam_size)
    options = SearchOptions(
        max_target_tokens=sessions.manifest.max_target_tokens, beam_size=beam_size, length_penalty=LENGTH_PENALTY
    )

    def translate(sources: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        wishes = [Wish(source, options) for source in sources]
        return [answer.target_ids for answer in engine.translate(wishes, together, lambda _: None)]

    return translate


def pytorch_of(model: object, together: int, beam_size: int) -> Translates:
    """Returns the trained model, in batches of so many sentences of about one length.

    Args:
        model: a `model.network.translation_model.TranslationModel`, in evaluation mode, where and in what it computes.
        together: sentences of a batch.
        beam_size: 1 is greedy search.
    """
    from model.generate import generate_beam, generate_greedy  # noqa: PLC0415 - who has no run has no torch
    from model.network.translation_model import TranslationModel  # noqa: PLC0415

    assert isinstance(model, TranslationModel)  # noqa: S101 - named so above

    def translate(sources: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        targets: dict[int, tuple[int, ...]] = {}
        order = sorted(range(len(sources)), key=lambda number: len(sources[number]))
        for first in range(0, len(order), together):
            batch = order[first : first + together]
            chosen = [sources[number] for number in batch]
            if beam_size == 1:
                answers = generate_greedy(model, chosen)
            else:
                answers = generate_beam(model, chosen, beam_size, LENGTH_PENALTY)
            targets |= {number: answer.target_ids for number, answer in zip(batch, answers, strict=True)}
        return [targets[number] for number in range(len(sources))]

    return translate


def measure(
    system: Translates, sources: Sequence[tuple[int, ...]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> Run:
    """Returns the fastest of some runs, after one that is not counted."""
    system(sources)
    runs = []
    for _ in range(rounds):
        started = clock()
        targets = system(sources)
        runs.append(Run(clock() - started, targets))
    return min(runs, key=lambda run: run.seconds)
