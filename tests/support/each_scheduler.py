"""The schedulers that the tests of scheduling run: the reference in Python, and the native one."""

from collections.abc import Callable

import pytest

from dragoman.serve.scheduler.scheduler import Scheduler
from tests.support.native_build import needs_compiler
from tests.support.native_loop import DrivenScheduler
from tests.support.schedulers import make_python_scheduler, maker_of

AnyScheduler = Scheduler | DrivenScheduler
MakeScheduler = Callable[..., AnyScheduler]
make_native_scheduler = maker_of(DrivenScheduler)

each_scheduler = pytest.mark.parametrize(
    "make_scheduler",
    [
        pytest.param(make_python_scheduler, id="python"),
        pytest.param(make_native_scheduler, id="native", marks=needs_compiler),
    ],
)
