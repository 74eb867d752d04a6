"""Continuous batching: one thread advances every running sequence by one token at each step.

Sequences join and leave between steps. The scheduler decides which ones join, the model computes, `selection` chooses
tokens, `rows` holds the state of each row. The engine handles token ids only, neither texts nor requests.
"""

import math
import threading
import time
from collections.abc import Callable

import numpy as np
import structlog
from numpy.typing import NDArray

from serve.bundle.manifest import Manifest
from serve.engine.prefill import batches, pad
from serve.engine.rows import Move, Rows
from serve.engine.selection import Selection, best_count
from serve.errors import DrainingError, InternalError, ServiceError
from serve.observability.metrics import Metrics
from serve.runtime.model import Model, Scores
from serve.scheduler.scheduler import Scheduler
from serve.scheduler.sequence import FAILED, SHUT_DOWN, DecodingSequence

# One failure may have its cause in one input; several in a row point to the model or the device.
UNHEALTHY_FAILURES = 3

ENGINE_THREAD = "engine"

log = structlog.get_logger(__name__)


class Engine:
    """One model, its rows and the thread that steps them.

    Attributes:
        failure_count: how many times `UNHEALTHY_FAILURES` failures in a row made the engine unhealthy.
    """

    def __init__(
        self,
        model: Model,
        scheduler: Scheduler,
        metrics: Metrics,
        manifest: Manifest,
        *,
        step_timeout_seconds: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts with no row and no thread.

        Args:
            model: the model; no other engine may use it.
            scheduler: supplies the sequences; engines may share it.
            metrics: counts steps and padding.
            manifest: gives the special tokens and the longest translation.
            step_timeout_seconds: a step that takes longer counts as hanging.
            clock: returns the time in seconds, on the clock of the sequences' deadlines.
        """
        self._model = model
        self._scheduler = scheduler
        self._metrics = metrics
        self._pad_id = manifest.pad_id
        self._clock = clock
        aligned = model.alignments.shape[1] > 0
        self._rows = Rows(
            model.slots,
            model.prefetched,
            max_source_tokens=model.alignments.shape[2],
            max_target_tokens=manifest.max_target_tokens,
            bos_id=manifest.bos_id,
            eos_id=manifest.eos_id,
            aligned=aligned,
        )
        self._selection = Selection(manifest.eos_id)
        self._step_timeout_seconds = step_timeout_seconds
        self._step_started_seconds: float | None = None
        self.failure_count = 0
        self._failures = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=ENGINE_THREAD, daemon=True)

    @property
    def healthy(self) -> bool:
        """False after `UNHEALTHY_FAILURES` failures in a row, until a step succeeds, and while a step hangs."""
        return self._failures < UNHEALTHY_FAILURES and not self.hanging

    @property
    def hanging(self) -> bool:
        """True while a step exceeds its timeout. Other threads must check this: the hanging one cannot."""
        started_seconds = self._step_started_seconds
        return started_seconds is not None and self._clock() - started_seconds > self._step_timeout_seconds

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self, timeout_seconds: float | None = None) -> None:
        """Ends the thread after its current step, then fails all sequences with DrainingError.

        A thread that exceeds the timeout is abandoned with its rows, and their sequences fail; None: no timeout.
        """
        self._stopping = True
        self._scheduler.drain()
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)
        error = DrainingError(SHUT_DOWN)
        self._scheduler.fail_all(error)
        if not self._thread.is_alive():
            self._fail_rows(error)
            return
        log.error("engine_hangs", rows=len(self._rows))
        for sequence in self._rows.sequences:
            self._scheduler.finish(sequence, error)

    def step(self) -> None:
        """Advances every sequence by one token. A failing model ends sequences, never the engine."""
        self._step_started_seconds = self._clock()
        self._step()
        self._step_started_seconds = None

    def _step(self) -> None:
        admitted = self._admit()
        try:
            if admitted:
                self._prefill(admitted)
            if self._rows:
                over = self._select(self._decode())
                self._notify(over)
                self._retire(over)
        except Exception:
            log.exception("decode_failed", rows=len(self._rows))
            self._count_failure()
            self._fail_rows(InternalError(FAILED))

    def _run(self) -> None:
        try:
            self._model.prepare()
        except Exception:  # a model that fails here fails again at its first step, which reports the error
            log.exception("prepare_failed")
        while not self._stopping and (self._rows or self._scheduler.wait()):
            self.step()

    def _admit(self) -> list[DecodingSequence]:
        """Returns the sequences to encode now: those that start, and prefetched ones that fill the batch."""
        free_rows = self._model.slots - len(self._rows)
        return self._scheduler.admit(free_rows, self._rows.encoded_rows, self._model.prefetched if free_rows else 0)

    def _prefill(self, sequences: list[DecodingSequence]) -> None:
        """Assigns rows to sequences and encodes them; sequences of a failed batch lose their rows."""
        places = dict(zip(sequences, self._rows.append(sequences), strict=True))
        failed: list[DecodingSequence] = []
        for batch in batches(sequences):
            try:
                self._encode(batch, [places[sequence] for sequence in batch])
            except Exception:
                log.exception("encode_failed", sequences=len(batch))
                self._count_failure()
                failed += batch
        if failed:
            leaving = np.zeros(self._rows.encoded_rows, np.bool_)
            leaving[np.concatenate([places[sequence] for sequence in failed])] = True
            for sequence in self._remove(leaving):
                self._scheduler.finish(sequence, InternalError(FAILED))

    def _encode(self, sequences: list[DecodingSequence], places: list[NDArray[np.int64]]) -> None:
        source_ids, source_lengths = pad([each.source_ids for each in sequences], self._pad_id)  # [B, S], [B]
        started_seconds = self._clock()
        self._model.encode(source_ids, source_lengths, np.array([first for first, *_ in places]))
        self._copy(
            [
                Move(first, row, 0, source_length)
                for (first, *further), source_length in zip(places, source_lengths.tolist(), strict=True)
                for row in further
            ]
        )
        encoded_seconds = self._clock()
        for sequence in sequences:
            sequence.encoded_seconds = encoded_seconds
        self._metrics.observe_step("encode", len(sequences), encoded_seconds - started_seconds)
        self._metrics.observe_padding(source_ids.size - int(source_lengths.sum()))

    def _count_failure(self) -> None:
        self._failures += 1
        if self._failures == UNHEALTHY_FAILURES:
            self.failure_count += 1

    def _copy(self, moves: list[Move]) -> None:
        if moves:
            self._model.copy_rows(*zip(*moves, strict=True))

    def _decode(self) -> Scores:
        started_seconds = self._clock()
        columns, computed = self._rows.columns, self._rows.computed
        scores = self._model.step(
            columns.token_ids[:computed],
            columns.positions[:computed],
            columns.source_lengths[:computed],
            occupied=self._rows.encoded_rows,
            scored_rows=self._rows.scored,
            best_count=best_count(columns.kinds),
            aligned=columns.kinds.attended,
        )
        self._metrics.observe_step("decode", computed, self._clock() - started_seconds)
        return scores

    def _select(self, scores: Scores) -> NDArray[np.bool_]:
        """Chooses the next token of every row; returns the rows that ended, bool [R]."""
        attended = self._rows.columns.kinds.attended
        attention = self._model.alignments[: len(self._rows)].mean(axis=1) if attended else None  # [R, S]
        over, sources, targets = self._selection.advance(self._rows, scores, attention)
        if len(sources):
            positions = self._rows.columns.positions[targets]
            self._model.branch_rows(sources.tolist(), targets.tolist(), positions.tolist())
        return over

    def _notify(self, over: NDArray[np.bool_]) -> None:
        """Records the time of first tokens, and sends the newest tokens to listeners."""
        now_seconds = self._clock()
        for row in (self._rows.columns.positions <= 1).nonzero()[0].tolist():
            sequence = self._rows.sequence(row)
            sequence.first_token_seconds = sequence.first_token_seconds or now_seconds
        self._rows.notify(over)

    def _retire(self, over: NDArray[np.bool_]) -> None:
        now_seconds = self._clock()
        leaving = self._rows.abandoned(now_seconds)  # [encoded]
        leaving[: len(over)] |= over
        if leaving.any():
            for sequence in self._remove(leaving):
                self._finish(sequence, now_seconds)
        self._failures = 0

    def _remove(self, leaving: NDArray[np.bool_]) -> list[DecodingSequence]:
        """Removes rows, bool [encoded]; returns the sequences that have no row left."""
        self._copy(self._rows.moves(leaving))
        return self._rows.remove(leaving)

    def _finish(self, sequence: DecodingSequence, now_seconds: float) -> None:
        error: ServiceError | None = sequence.abandonment(now_seconds)
        finite = [bool(np.isfinite(each.score)) for each in sequence.hypotheses]
        if error is None and not (finite and all(finite)):
            log.error("invalid_probabilities", target_tokens=sequence.decoded_tokens)
            error = InternalError(FAILED)
        # The sort is stable: ties keep the order in which hypotheses finished.
        sequence.hypotheses.sort(key=lambda hypothesis: -hypothesis.normalized_score)
        del sequence.hypotheses[sequence.options.hypotheses :]
        if error is None:
            self._metrics.observe_pace(
                first_token_seconds=sequence.first_token_seconds - sequence.submitted_seconds,
                further_tokens=len(sequence.best.token_scores) - 1,
                further_seconds=now_seconds - sequence.first_token_seconds,
            )
        self._scheduler.finish(sequence, error)

    def _fail_rows(self, error: ServiceError) -> None:
        for sequence in self._rows.remove(np.ones(self._rows.encoded_rows, np.bool_)):
            self._scheduler.finish(sequence, error)
