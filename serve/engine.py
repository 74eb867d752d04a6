"""Continuous batching: one thread that moves every running sequence on by one token at each step.

Sequences join and leave between steps. The scheduler decides who joins, the model computes, `search` chooses tokens,
`rows` remembers. Knows neither texts nor requests; built by `app`.
"""

import threading
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
import structlog
from numpy.typing import NDArray

from serve.errors import DrainingError, InternalError, ServiceError
from serve.metrics import Metrics
from serve.prefill import batches, pad
from serve.rows import Rows
from serve.scheduler import Scheduler
from serve.search import GreedyStep, greedy
from serve.sequence import Sequence

# One failure may be the fault of one input; several in a row are the fault of the model or the device.
UNHEALTHY_FAILURES = 3

FAILURE_MESSAGE = "the translation failed inside the server"

log = structlog.get_logger(__name__)


class Model(Protocol):
    """What the engine needs of a model: two computations, and rows that can be moved. B rows, R running, V vocabulary.

    A row is a place in the model's state; the running rows are always 0 to R - 1.
    """

    @property
    def slots(self) -> int:
        """The most rows."""

    def encode(self, source_ids: NDArray[np.int64], source_lengths: NDArray[np.int32], first_row: int) -> None:
        """Encodes and keeps what the decoder needs in rows `first_row` to `first_row + B - 1`.

        Args:
            source_ids: int64 [B, S], padded on the right.
            source_lengths: int32 [B], source tokens without padding.
            first_row: the row of the first source.
        """

    def decode_step(
        self, token_ids: NDArray[np.int64], positions: NDArray[np.int32], source_lengths: NDArray[np.int32]
    ) -> NDArray[np.float32]:
        """Computes one step of rows 0 to R - 1 and moves their state on by it.

        Args:
            token_ids: int64 [R], the last token of each row.
            positions: int32 [R], its position; the row has read that many tokens already.
            source_lengths: int32 [R].

        Returns:
            logits, float32 [R, V], valid until the next call.
        """

    def move_row(self, source: int, target: int, positions: int, source_length: int) -> None:
        """Copies a row's state over that of another row.

        Args:
            source: the row to copy.
            target: the row to overwrite.
            positions: tokens that the row has read.
            source_length: source tokens of the row.
        """


class Engine:
    """One model, its rows and the thread that steps them."""

    def __init__(
        self,
        model: Model,
        scheduler: Scheduler,
        metrics: Metrics,
        *,
        bos_id: int,
        eos_id: int,
        pad_id: int,
        max_target_tokens: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts with no row and no thread.

        Args:
            model: used by this engine alone.
            scheduler: where sequences come from; engines may share it.
            metrics: where steps and padding are counted.
            bos_id: the token that every translation starts from.
            eos_id: the token that ends a translation.
            pad_id: fills up the shorter sources of a prefill.
            max_target_tokens: the longest translation that any sequence may ask for, the end token excluded.
            clock: the time in seconds, on the clock of the sequences' deadlines.
        """
        self._model = model
        self._scheduler = scheduler
        self._metrics = metrics
        self._pad_id = pad_id
        self._clock = clock
        self._rows = Rows(model.slots, max_target_tokens, bos_id, eos_id)
        self._failures = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def healthy(self) -> bool:
        """False after several failures of the model in a row, until a step succeeds."""
        return self._failures < UNHEALTHY_FAILURES

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after its current step, then everything that still runs or waits with DrainingError."""
        self._stopping = True
        self._scheduler.drain()
        if self._thread.ident is not None:
            self._thread.join()
        error = DrainingError("the server shut down before the translation was complete")
        self._fail_rows(error)
        self._scheduler.fail_all(error)

    def step(self) -> None:
        """Moves every sequence on by one token; a failing model ends sequences, never the engine."""
        for batch in batches(self._scheduler.admit(self._model.slots - len(self._rows), len(self._rows))):
            self._prefill(batch)
        if not self._rows:
            return
        try:
            logits = self._decode()
            selected = greedy(logits)
            self._retire(selected)
        except Exception:
            log.exception("decode failed", rows=len(self._rows))
            self._failures += 1
            self._fail_rows(InternalError(FAILURE_MESSAGE))

    def _run(self) -> None:
        while not self._stopping and (self._rows or self._scheduler.wait()):
            self.step()

    def _prefill(self, sequences: list[Sequence]) -> None:
        source_ids, source_lengths = pad(sequences, self._pad_id)  # [B, S], [B]
        started_seconds = self._clock()
        try:
            self._model.encode(source_ids, source_lengths, len(self._rows))
        except Exception:
            log.exception("encode failed", rows=len(sequences))
            self._failures += 1
            for sequence in sequences:
                self._scheduler.finish(sequence, InternalError(FAILURE_MESSAGE))
            return
        self._metrics.observe_step("encode", len(sequences), self._clock() - started_seconds)
        self._metrics.observe_padding(source_ids.size - int(source_lengths.sum()))
        self._rows.append(sequences)

    def _decode(self) -> NDArray[np.float32]:
        started_seconds = self._clock()
        logits = self._model.decode_step(self._rows.token_ids, self._rows.positions, self._rows.source_lengths)
        self._metrics.observe_step("decode", len(self._rows), self._clock() - started_seconds)
        return logits

    def _retire(self, selected: GreedyStep) -> None:
        over = self._rows.record(selected)
        now_seconds = self._clock()
        leaving = over | self._rows.abandoned(now_seconds)  # [R]
        if leaving.any():
            for move in self._rows.moves(leaving):
                self._model.move_row(*move)
            for sequence in self._rows.remove(leaving):
                self._finish(sequence, now_seconds)
        self._failures = 0

    def _finish(self, sequence: Sequence, now_seconds: float) -> None:
        error: ServiceError | None = sequence.abandonment(now_seconds)
        if error is None and np.isnan(sequence.best.score):
            log.error("the model gave no probabilities", target_tokens=sequence.decoded_tokens)
            error = InternalError(FAILURE_MESSAGE)
        self._scheduler.finish(sequence, error)

    def _fail_rows(self, error: ServiceError) -> None:
        for sequence in self._rows.remove(np.ones(len(self._rows), np.bool_)):
            self._scheduler.finish(sequence, error)
