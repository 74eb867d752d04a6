"""The reference scheduler in Python and the native one, their sequences, and engines that a test steps manually."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from prometheus_client import CollectorRegistry

from dragoman.serve.errors import InternalError
from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.scheduler.scheduler import Scheduler
from dragoman.serve.scheduler.sequence import DecodingSequence, SequenceGroup
from dragoman.serve.search.options import SearchOptions
from tests.support.fakes import FakeClock
from tests.support.native_build import needs_compiler
from tests.support.native_loop import DrivenScheduler
from tests.support.scheduler_reference import rows_of


def make_sequence(
    source_tokens: int = 1,
    deadline_seconds: float | None = None,
    on_finish: Callable[[list[DecodingSequence]], object] = lambda _: None,
    *,
    rows: int = 1,
    priority: int = 0,
    fairness_key: object = None,
) -> DecodingSequence:
    """Returns a sequence of beam search, which holds at most 8 tokens more than its source in every row."""
    options = SearchOptions(max_target_tokens=8, beam_size=rows)
    group = SequenceGroup(on_finish, deadline_seconds, priority, fairness_key)
    return DecodingSequence(tuple(range(source_tokens)), options, group)


Made = TypeVar("Made", Scheduler, DrivenScheduler)


def maker_of(kind: type[Made]) -> Callable[..., Made]:
    """Returns a function that makes schedulers of a kind, by default with metrics of their own."""

    def make(
        slots: int = 4,
        queue_limit: int = 4,
        prefill_token_budget: int = 100,
        clock: FakeClock | None = None,
        *,
        metrics: Metrics | None = None,
        **options: Any,
    ) -> Made:
        metrics = metrics or Metrics(CollectorRegistry(), model="tiny")
        return kind(slots, queue_limit, prefill_token_budget, metrics, clock or FakeClock(), **options)

    return make


AnyScheduler = Scheduler | DrivenScheduler
MakeScheduler = Callable[..., AnyScheduler]
make_python_scheduler, make_native_scheduler = maker_of(Scheduler), maker_of(DrivenScheduler)
each_scheduler = pytest.mark.parametrize(
    "make_scheduler",
    [
        pytest.param(make_python_scheduler, id="python"),
        pytest.param(make_native_scheduler, id="native", marks=needs_compiler),
    ],
)


@dataclass
class Stepped:
    """Engines that a test steps manually: each step schedules, and a test ends any sequence."""

    scheduler: AnyScheduler
    engine_rows: int
    engines: int = 1

    def __post_init__(self) -> None:
        self.running: list[list[DecodingSequence]] = [[] for _ in range(self.engines)]

    def free_rows(self, engine: int = 0) -> int:
        return self.engine_rows - rows_of(self.running[engine])

    def schedule(self, engine: int = 0) -> list[DecodingSequence]:
        free_rows = self.free_rows(engine)
        scheduled = self.scheduler.schedule(free_rows, self.engine_rows - free_rows)
        self.running[engine] += scheduled
        return scheduled

    def finish(self, engine: int = 0) -> None:
        """Ends the oldest running sequence of an engine."""
        self.scheduler.finish(self.running[engine].pop(0), InternalError("broken"))


def line_of(scheduler: AnyScheduler) -> list[tuple[DecodingSequence, int]]:
    """Returns the waiting sequences in order, with the rows that passed each."""
    if isinstance(scheduler, DrivenScheduler):
        return scheduler.line()
    return [(place.sequence, place.passed_rows) for place in scheduler._waiting._entries]
