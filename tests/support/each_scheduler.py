"""The schedulers that the tests of scheduling run: the reference in Python, and the native one."""

from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from serve.observability.metrics import Metrics
from serve.scheduler.scheduler import Scheduler
from tests.support.fakes import FakeClock
from tests.support.native_build import needs_compiler
from tests.support.native_loop import DrivenScheduler
from tests.support.schedulers import make_python_scheduler

AnyScheduler = Scheduler | DrivenScheduler
MakeScheduler = Callable[..., AnyScheduler]


def make_native_scheduler(
    slots: int = 4,
    queue_limit: int = 4,
    prefill_token_budget: int = 100,
    clock: FakeClock | None = None,
    *,
    metrics: Metrics | None = None,
    engines: int = 1,
    running_token_budget: int | None = None,
    queue_timeout_seconds: float | None = None,
) -> DrivenScheduler:
    """Returns a native scheduler, by default with metrics of its own."""
    return DrivenScheduler(
        slots,
        queue_limit,
        prefill_token_budget,
        metrics or Metrics(CollectorRegistry(), model="tiny"),
        clock or FakeClock(),
        engines=engines,
        running_token_budget=running_token_budget,
        queue_timeout_seconds=queue_timeout_seconds,
    )


each_scheduler = pytest.mark.parametrize(
    "make_scheduler",
    [
        pytest.param(make_python_scheduler, id="python"),
        pytest.param(make_native_scheduler, id="native", marks=needs_compiler),
    ],
)
