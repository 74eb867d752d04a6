"""The service's engine, scheduler and runtime, stepped in the calling thread.

Verification thus runs the code that serves, and decides how many sequences run at once and when each one joins.
"""

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from prometheus_client import CollectorRegistry

from dragoman.export.answer import Answer
from dragoman.serve.engine.engine import Engine
from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.runtime.placement import ModelSessions
from dragoman.serve.scheduler.scheduler import Scheduler
from dragoman.serve.scheduler.sequence import DecodingSequence, SequenceGroup, SequenceSpec

# Few enough that a large batch does not start all at once.
PREFILL_TOKENS = 2048


class SyncEngine:
    """An engine without a thread."""

    def __init__(self, sessions: ModelSessions, slots: int) -> None:
        """Starts empty with `slots` rows, of which a sequence with beam search takes `beam_size`."""
        metrics = Metrics(CollectorRegistry(), sessions.manifest.name)
        self._scheduler = Scheduler(slots, 0, PREFILL_TOKENS, metrics)
        self._engine = Engine(sessions.runtime(slots), self._scheduler, metrics, sessions.manifest)

    def translate(
        self,
        specs: Sequence[SequenceSpec],
        together: int,
        advance: Callable[[int], object],
        random: np.random.Generator | None = None,
    ) -> list[Answer]:
        """Returns the best translation of each spec, in the order of the specs.

        `together` is the most sequences that run at once; their rows must fit into the slots. `advance` is called with
        1 for each finished one. `random` draws the order of the sequences and how many join at each step; without it,
        they join in order, as soon as there is room.
        """
        group = SequenceGroup(lambda ended: advance(len(ended)))
        sequences = [DecodingSequence(*spec, group) for spec in specs]
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
