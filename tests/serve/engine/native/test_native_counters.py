"""The counters of a native engine: every second since its creation is in one of them."""

import pytest

from tests.support.fakes import ENDLESS_ID
from tests.support.native_build import needs_compiler
from tests.support.native_loop import NativeBench

pytestmark = needs_compiler
ENCODE_SECONDS, STEP_SECONDS, IDLE_SECONDS = 2.0, 3.0, 50.0


@pytest.fixture(name="bench")
def _bench() -> NativeBench:
    """A bench with a clock that only the model and the test advance."""
    bench = NativeBench()

    def let_pass(seconds: float) -> None:
        bench.clock.seconds += seconds

    bench.model.on_encode = lambda: let_pass(ENCODE_SECONDS)
    bench.model.on_step = lambda: let_pass(STEP_SECONDS)
    return bench


def seconds_of(bench: NativeBench) -> tuple[float, float, float, float]:
    encode, decode, search, rest = bench.scheduler.loop.counts(0)
    return encode.seconds, decode.seconds, search, rest


def test_time_between_steps_is_in_the_rest(bench: NativeBench) -> None:
    bench.submit(ENDLESS_ID)
    bench.step()
    bench.clock.seconds += IDLE_SECONDS
    bench.step()
    assert seconds_of(bench) == pytest.approx((ENCODE_SECONDS, 2 * STEP_SECONDS, 0, IDLE_SECONDS))


def test_time_after_the_last_step_is_not_counted_yet(bench: NativeBench) -> None:
    bench.submit(ENDLESS_ID)
    bench.step()
    bench.clock.seconds += IDLE_SECONDS
    assert seconds_of(bench) == pytest.approx((ENCODE_SECONDS, STEP_SECONDS, 0, 0))


def test_the_time_of_a_failed_run_is_in_the_rest(bench: NativeBench) -> None:
    bench.model.encode_error = RuntimeError("no memory")
    bench.submit(ENDLESS_ID)
    bench.step()
    assert seconds_of(bench) == pytest.approx((0, 0, 0, ENCODE_SECONDS))
