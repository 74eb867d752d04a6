"""The native loop with fake models, stepped by hand: the counterparts of `Bench` and of the scheduler's helpers."""

from collections.abc import Callable
from contextlib import suppress
from ctypes import CFUNCTYPE, byref, c_double, c_int32, c_int64, c_uint64, c_void_p
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from dragoman.serve.engine.engines import NativeEngine
from dragoman.serve.engine.native.records import Failure
from dragoman.serve.engine.native.scheduler import NativeScheduler
from dragoman.serve.errors import ServiceError
from dragoman.serve.native.loop import Loop, LoopConfig, LoopError, LoopLibrary
from dragoman.serve.observability.instruments import SEQUENCE_BUCKETS
from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.observability.request_metrics import LATENCY_BUCKETS
from dragoman.serve.scheduler.sequence import DecodingSequence, SequenceState
from tests.support.engines import STEP_TIMEOUT_SECONDS, AnyBench
from tests.support.fakes import BOS_ID, CONTINUING_IDS, EOS_ID, VOCABULARY, FakeClock
from tests.support.native_build import loop_library

MAX_RECORDS = 4096
Hook = CFUNCTYPE(None)


@cache
def library() -> LoopLibrary:
    made = LoopLibrary(loop_library())
    for functions in (made.quick, made.slow):
        functions.driver_new.restype = functions.driver_loop.restype = c_void_p
        functions.driver_new.argtypes = (c_void_p, c_void_p, c_uint64, c_int32)
        functions.driver_loop.argtypes = functions.driver_free.argtypes = (c_void_p,)
        functions.driver_set_seconds.argtypes = (c_void_p, c_double)
        functions.driver_add_engine.argtypes = (c_void_p, c_void_p, c_int32, c_int32)
        functions.driver_step.argtypes = (c_void_p, c_int64)
        functions.driver_set_failures.argtypes = (c_void_p, c_int64, c_int32, c_int32)
        functions.driver_set_hooks.argtypes = (c_void_p, c_int64, Hook, Hook)
        functions.driver_prefills.argtypes = functions.driver_steps.argtypes = (c_void_p, c_int64, c_void_p, c_int64)
        functions.driver_prefills.restype = functions.driver_steps.restype = c_int64
        functions.driver_schedule.argtypes = (*(c_void_p, c_void_p, c_int32, c_int64), *(c_int64, c_void_p, c_int64))
        functions.driver_schedule.restype = functions.driver_line.restype = c_int64
        functions.driver_finish.argtypes = (c_void_p, c_void_p, c_uint64, c_int32, c_double, c_int64)
        functions.driver_fail_all.argtypes = (c_void_p, c_int32)
        functions.driver_wait.argtypes = (c_void_p,)
        functions.driver_line.argtypes = (c_void_p, c_void_p, c_int64)
    return made


class DrivenScheduler(NativeScheduler):
    """The native scheduler with a clock that a test sets, and with the calls of the engines."""

    def __init__(
        self,
        slots: int,
        queue_limit: int,
        prefill_token_budget: int,
        metrics: Metrics,
        clock: Callable[[], float],
        *,
        engines: int = 1,
        running_token_budget: int | None = None,
        queue_timeout_seconds: float | None = None,
        real_clock: bool = False,
        shortlist: Path | None = None,
    ) -> None:
        """Takes the arguments of `Scheduler`; with `real_clock`, the loop has its own clock."""
        config = LoopConfig(
            engine_rows=slots // engines,
            engines=engines,
            prefill_token_budget=prefill_token_budget,
            running_token_budget=running_token_budget,
            begin_id=BOS_ID,
            end_id=EOS_ID,
            vocabulary=VOCABULARY,
            max_source_tokens=80,
            max_target_tokens=80,
            aligned=True,
            continuing_ids=CONTINUING_IDS,
            seconds_bounds=LATENCY_BUCKETS,
            sequence_bounds=SEQUENCE_BUCKETS,
            shortlist=shortlist,
        )
        self.config = config
        self._real_clock = real_clock
        self._errors: dict[int, ServiceError] = {}
        super().__init__(library(), config, queue_limit, metrics, clock, queue_timeout_seconds=queue_timeout_seconds)

    def _create(self, library: LoopLibrary, config: LoopConfig) -> Loop:
        self.driver: Any = library.quick.driver_new(
            byref(config.structure(self._write_end)), *config.continuing(), self._real_clock
        )
        return Loop(library, config, c_void_p(library.quick.driver_loop(self.driver)))

    @property
    def idle(self) -> bool:
        """True if every result has been delivered; delivers those so far."""
        self.deliver()
        self.publish_load()
        return super().idle

    def set_time(self) -> None:
        library().quick.driver_set_seconds(self.driver, self._clock())

    def schedule(self, free_rows: int, running_rows: int) -> list[DecodingSequence]:
        self.set_time()
        tickets = (c_uint64 * MAX_RECORDS)()
        count = library().quick.driver_schedule(
            self.driver, self.loop.handle, 0, free_rows, running_rows, tickets, len(tickets)
        )
        scheduled = [self._sequences[ticket] for ticket in tickets[:count]]
        for sequence in scheduled:
            sequence.state, sequence.started_seconds = SequenceState.RUNNING, self._clock()
        self.deliver()
        return scheduled

    def finish(self, sequence: DecodingSequence, error: ServiceError | None = None) -> None:
        self.set_time()
        if error is not None:
            self._errors[id(sequence)] = error
        failure = Failure.NONE if error is None else Failure.CANCELLED if sequence.cancelled else Failure.INTERNAL
        library().quick.driver_finish(
            *(self.driver, self.loop.handle, id(sequence), failure, sequence.encoded_seconds, sequence.decoded_tokens)
        )
        self.deliver()

    def wait(self) -> bool:
        """Blocks an idle engine until a sequence may start."""
        return bool(library().slow.driver_wait(self.loop.handle))

    def fail_all(self, error: ServiceError) -> None:
        self._errors.update((id(sequence), error) for sequence, _ in self.line())
        library().quick.driver_fail_all(self.loop.handle, Failure.INTERNAL)
        self.deliver()

    def line(self) -> list[tuple[DecodingSequence, int]]:
        """Returns the waiting sequences in order, with the rows that passed each."""
        values = (c_uint64 * (2 * MAX_RECORDS))()
        count = library().quick.driver_line(self.loop.handle, values, len(values))
        return [(self._sequences[values[2 * place]], values[2 * place + 1]) for place in range(count)]

    def _error(self, sequence: DecodingSequence, failure: Failure) -> ServiceError:
        return self._errors.pop(id(sequence), None) or super()._error(sequence, failure)


class NativeFake:
    """The fake model of one engine, as a test sees it."""

    def __init__(self, scheduler: DrivenScheduler, number: int) -> None:
        self._scheduler = scheduler
        self._number = number
        self._failing = {"encode": False, "decode": False}
        self._hooks = {"encode": Hook(lambda: None), "step": Hook(lambda: None)}

    @property
    def prefills(self) -> list[tuple[int, int]]:
        """(sequences, source tokens) of each run of the encoder."""
        values = self._log("driver_prefills")
        return list(zip(values[::2], values[1::2], strict=True))

    @property
    def steps(self) -> list[int]:
        return self._log("driver_steps")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("encode_error", "decode_error"):
            self._failing[name.removesuffix("_error")] = value is not None
            library().quick.driver_set_failures(self._scheduler.driver, self._number, *self._failing.values())
        elif name in ("on_encode", "on_step"):
            self._hooks[name.removeprefix("on_")] = Hook(self._timed(value))
            library().quick.driver_set_hooks(self._scheduler.driver, self._number, *self._hooks.values())
        else:
            super().__setattr__(name, value)

    def _timed(self, hook: Callable[[], object]) -> Callable[[], None]:
        def call() -> None:
            hook()
            self._scheduler.set_time()

        return call

    def _log(self, function: str) -> list[int]:
        values = (c_int64 * MAX_RECORDS)()
        count = getattr(library().quick, function)(self._scheduler.driver, self._number, values, len(values))
        return values[:count]


class SteppedEngine(NativeEngine):
    """A native engine that a test may step."""

    def __init__(self, scheduler: DrivenScheduler, number: int, *arguments: Any, **options: Any) -> None:
        self._stepped, self._place = scheduler, number
        super().__init__(scheduler, number, *arguments, **options)

    def step(self) -> None:
        self._stepped.set_time()
        library().slow.driver_step(self._stepped.loop.handle, self._place)
        self._stepped.deliver()


@dataclass
class NativeBench(AnyBench):
    """A native engine that a test steps manually, with its parts, as `Bench` has them."""

    slots: int = 4
    queue_limit: int = 1000
    prefill_token_budget: int = 1000
    clock: FakeClock = field(default_factory=FakeClock)
    real_clock: bool = False
    shortlist: Path | None = None

    scheduler: DrivenScheduler = field(init=False)
    engine: SteppedEngine = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.registry, model="tiny")
        self.scheduler = DrivenScheduler(
            *(self.slots, self.queue_limit, self.prefill_token_budget, self.metrics, self.clock),
            real_clock=self.real_clock,
            shortlist=self.shortlist,
        )
        self._engines = 0
        self.engine, self.model = self.add_engine(self.slots)

    def __del__(self) -> None:
        self.scheduler.close()

    def add_engine(self, slots: int, *, finite: bool = False) -> tuple[SteppedEngine, NativeFake]:
        number, self._engines = self._engines, self._engines + 1
        library().quick.driver_add_engine(self.scheduler.driver, self.scheduler.loop.handle, slots, finite)
        engine = SteppedEngine(
            *(self.scheduler, number, self.metrics), step_timeout_seconds=STEP_TIMEOUT_SECONDS, clock=self.clock
        )
        return engine, NativeFake(self.scheduler, number)

    def sample(self, name: str, **labels: str) -> float | None:
        with suppress(LoopError):  # a closed loop has published all
            self.engine.publish()
        return super().sample(name, **labels)
