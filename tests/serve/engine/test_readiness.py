"""A model is ready after its golden sentences came out right, while its engines are healthy."""

import pytest
from structlog.testing import capture_logs

from serve.engine.engine import UNHEALTHY_FAILURES
from serve.engine.readiness import Readiness
from serve.errors import NotReadyError
from tests.support.engines import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def readiness(bench: Bench) -> Readiness:
    return Readiness(bench.metrics, [bench.make_engine(bench.model), bench.engine])


def fail(bench: Bench) -> None:
    """Makes the engine unhealthy; its next step succeeds."""
    bench.model.decode_error = RuntimeError("device lost")
    with capture_logs():
        for _ in range(UNHEALTHY_FAILURES):
            bench.submit(7)
            bench.step()
    bench.model.decode_error = None


def test_an_unverified_model_is_not_ready(readiness: Readiness, bench: Bench) -> None:
    with pytest.raises(NotReadyError, match="warming up"):
        readiness.check()
    assert bench.sample("model_ready") == 0
    readiness.verified = True
    readiness.check()
    assert bench.sample("model_ready") == 1


def test_a_model_is_not_ready_while_an_engine_fails(readiness: Readiness, bench: Bench) -> None:
    readiness.verified = True
    fail(bench)
    with pytest.raises(NotReadyError, match="the model failed"):
        readiness.check()


def test_a_recovered_engine_must_be_verified_again(readiness: Readiness, bench: Bench) -> None:
    """Queued sequences may succeed before the next check."""
    readiness.verified = True
    fail(bench)
    bench.submit(7)
    bench.step()
    assert readiness.healthy
    assert not readiness.ready
    readiness.refresh()
    assert bench.sample("model_ready") == 0
    readiness.verified = True
    assert readiness.ready
