"""Continuous batching: one thread advances every running sequence by one token at each step.

Sequences join and leave between steps. The scheduler decides which ones join, the model computes, `selection` chooses
tokens, `running` holds the hypotheses of a sequence. The engine handles token ids only, neither texts nor requests.

It is the readable version of the native loop (`serve/native/src/loop`): both return the same bits. It serves where the
native loop cannot.
"""

import math
import threading
import time
from collections.abc import Callable, Hashable, Sequence

import structlog

from dragoman.serve.bundle.manifest import Manifest
from dragoman.serve.bundle.shortlist import Shortlist
from dragoman.serve.engine.running import RunningSequence, batches, candidates_of, pad
from dragoman.serve.engine.selection import Step
from dragoman.serve.errors import DrainingError, InternalError, ServiceError
from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.runtime.model import Model
from dragoman.serve.scheduler.scheduler import Scheduler
from dragoman.serve.scheduler.sequence import FAILED, SHUT_DOWN

# One failure may have its cause in one input; several in a row point to the model or the device.
UNHEALTHY_FAILURES = 3

ENGINE_THREAD = "engine"

log = structlog.get_logger(__name__)


class Engine:
    """One model, its running sequences and the thread that steps them.

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
        continuing_ids: Sequence[int] = (),
        shortlist: Shortlist | None = None,
        step_timeout_seconds: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts with no sequence and no thread.

        Args:
            model: the model; no other engine may use it.
            scheduler: supplies the sequences; engines may share it.
            continuing_ids: tokens that continue a word.
            shortlist: that of the model; None: it has none.
            step_timeout_seconds: a step that takes longer counts as hanging.
            clock: returns the time in seconds, on the clock of the sequences' deadlines.
        """
        self._model = model
        self._scheduler = scheduler
        self._metrics = metrics
        self._manifest = manifest
        self._continuing_ids = continuing_ids
        self._shortlist = shortlist
        self._clock = clock
        self._running: list[RunningSequence] = []
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
    def condition(self) -> tuple[bool, int]:
        """Whether the engine is healthy, and its failure count."""
        return self.healthy, self.failure_count

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
        if self._thread.is_alive():
            log.error("engine_hangs", sequences=len(self._running))
        self._fail(error)

    def step(self) -> None:
        """Advances every sequence by one token. A failing model ends sequences, never the engine."""
        self._step_started_seconds = self._clock()
        try:
            self._prefill(self._schedule())
            if self._running:
                self._decode()
                self._retire()
        except Exception:
            log.exception("decode_failed", sequences=len(self._running))
            self._count_failure()
            self._fail(InternalError(FAILED))
        self._step_started_seconds = None

    def _run(self) -> None:
        while not self._stopping and (self._running or self._scheduler.wait()):
            self.step()

    @property
    def _free_rows(self) -> list[int]:
        """The rows of the model that no hypothesis may need."""
        taken = {row for running in self._running for row in running.rows}
        return [row for row in range(self._model.slots) if row not in taken]

    def _schedule(self) -> list[RunningSequence]:
        free_rows = self._free_rows
        scheduled = self._scheduler.schedule(len(free_rows), self._model.slots - len(free_rows))
        starting = []
        for sequence in scheduled:
            rows, free_rows = free_rows[: sequence.options.rows], free_rows[sequence.options.rows :]
            starting.append(RunningSequence(sequence, rows))
        self._running += starting
        return starting

    def _prefill(self, starting: list[RunningSequence]) -> None:
        """Encodes sources in batches; the sequences of a batch that fails end."""
        for batch in batches(starting):
            try:
                self._encode(batch)
            except Exception:
                log.exception("encode_failed", sequences=len(batch))
                self._count_failure()
                for running in batch:
                    self._running.remove(running)
                    self._scheduler.finish(running.sequence, InternalError(FAILED))

    def _encode(self, batch: list[RunningSequence]) -> None:
        """Encodes the sources of a batch, equal ones of a request once."""
        started_seconds = self._clock()
        rows = dict[tuple[Hashable, tuple[int, ...]], list[int]]()
        for entry in batch:
            entry.candidates = candidates_of(entry.sequence, self._shortlist, self._manifest)
            rows.setdefault((entry.sequence.group.fairness_key, entry.sequence.source_ids), []).extend(entry.rows)
        source_ids, source_lengths = pad([source for _, source in rows], self._manifest.pad_id)
        self._model.encode(source_ids, source_lengths, list(rows.values()))
        encoded_seconds = self._clock()
        for entry in batch:
            entry.sequence.encoded_seconds = encoded_seconds
        self._metrics.observe_step("encode", len(rows), encoded_seconds - started_seconds)
        self._metrics.padding.inc(source_ids.size - int(source_lengths.sum()))

    def _decode(self) -> None:
        """Adds a token to every live hypothesis."""
        started_seconds = self._clock()
        step = Step(self._running, self._manifest.bos_id, self._manifest.eos_id, self._continuing_ids)
        scores = self._model.step(
            step.numbers,
            step.token_ids,
            step.positions,
            step.source_lengths,
            scored_rows=step.scored,
            best_count=step.best_count,
            aligned=step.attended,
        )
        self._metrics.observe_step("decode", len(step.rows), self._clock() - started_seconds)
        branches = step.advance(scores, self._model.alignments if step.attended else None)
        if branches:
            self._model.branch_rows(*zip(*branches, strict=True))
        self._notify()

    def _notify(self) -> None:
        """Records the time of first tokens, and sends the newest tokens to listeners."""
        now_seconds = self._clock()
        for running in self._running:
            sequence = running.sequence
            sequence.first_token_seconds = sequence.first_token_seconds or now_seconds
            if sequence.on_token and running.live:
                sequence.on_token(running.live[0].tokens[-1].token_id)

    def _retire(self) -> None:
        now_seconds = self._clock()
        errors = [(item, item.sequence.abandonment(now_seconds)) for item in self._running]
        leaving = [(problem, error) for problem, error in errors if error is not None or not problem.live]
        self._running = [problem for problem, error in errors if error is None and problem.live]
        for item, error in leaving:
            self._finish(item, error)
        self._failures = 0

    def _finish(self, item: RunningSequence, error: ServiceError | None) -> None:
        sequence = item.sequence
        finite = [math.isfinite(candidate.score) for candidate in item.finished]
        if error is None and not (finite and all(finite)):
            log.error("invalid_probabilities", target_tokens=sequence.decoded_tokens)
            error = InternalError(FAILED)
        # The sort is stable: ties keep the order in which hypotheses finished.
        best = sorted(item.finished, key=lambda hypothesis: -hypothesis.normalized_score)
        sequence.hypotheses = tuple(best[: sequence.options.hypotheses])
        self._scheduler.finish(sequence, error)

    def _count_failure(self) -> None:
        self._failures += 1
        if self._failures == UNHEALTHY_FAILURES:
            self.failure_count += 1

    def _fail(self, error: ServiceError) -> None:
        running, self._running = self._running, []
        for sequence in running:
            self._scheduler.finish(sequence.sequence, error)
