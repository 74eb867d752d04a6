"""The service's own engine, scheduler and runtime, stepped in the calling thread: what is verified is what serves.

Sentences join when they are told to, as many at once as are wished, which no server can be asked for. Knows neither
texts nor PyTorch.
"""

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from prometheus_client import CollectorRegistry

from export.verify.answer import Answer
from serve.engine.engine import Engine
from serve.observability.metrics import Metrics
from serve.runtime.cpu import prefetched_rows
from serve.runtime.placement import ModelSessions
from serve.scheduler.scheduler import Scheduler
from serve.scheduler.sequence import DecodingSequence, SequenceSpec

# Few enough that a large batch does not start all at once.
PREFILL_TOKENS = 2048


class SyncEngine:
    """An engine without a thread."""

    def __init__(self, sessions: ModelSessions, slots: int) -> None:
        """Starts empty.

        Args:
            sessions: of the bundle.
            slots: rows that may run at once, of which a beam takes as many as it is wide.
        """
        manifest = sessions.manifest
        metrics = Metrics(CollectorRegistry(), manifest.name)
        self._scheduler = Scheduler(slots, 0, PREFILL_TOKENS, metrics)
        self._engine = Engine(
            sessions.runtime(slots, prefetched_rows(slots)),
            self._scheduler,
            metrics,
            bos_id=manifest.bos_id,
            eos_id=manifest.eos_id,
            pad_id=manifest.pad_id,
            max_target_tokens=manifest.max_target_tokens,
        )

    def translate(
        self,
        specs: Sequence[SequenceSpec],
        together: int,
        advance: Callable[[int], object],
        random: np.random.Generator | None = None,
    ) -> list[Answer]:
        """Returns the best translation of each wish, in the order of the wishes.

        Args:
            specs: what to translate.
            together: how many may run at once; their rows must fit into the slots.
            advance: called with 1 for each that is done.
            random: decides who joins when and in whose company; None: in their order, as soon as there is room.
        """

        def on_finish(_: DecodingSequence) -> None:
            advance(1)

        sequences = [DecodingSequence(*spec, None, on_finish) for spec in specs]
        order = range(len(specs)) if random is None else random.permutation(len(specs)).tolist()
        joining = deque(sequences[number] for number in order)
        while joining or not self._scheduler.idle:
            room = together - self._scheduler.waiting - self._scheduler.running
            newcomers = room if random is None else int(random.integers(room + 1))
            self._scheduler.submit([joining.popleft() for _ in range(min(newcomers, len(joining)))])
            self._engine.step()
        return [_answer(sequence) for sequence in sequences]


def _answer(sequence: DecodingSequence) -> Answer:
    if sequence.error is not None:
        return Answer((), np.nan)
    best = sequence.best
    return Answer(best.target_ids, best.score, best.token_scores)
