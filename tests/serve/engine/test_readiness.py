"""A model is ready after its golden sentences came out right, while its engines are healthy."""

import pytest
from structlog.testing import capture_logs

from dragoman.serve.engine.engine import UNHEALTHY_FAILURES
from dragoman.serve.engine.engines import Readiness
from dragoman.serve.errors import NotReadyError
from tests.support.engines import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def readiness(bench: Bench) -> Readiness:
    return Readiness(bench.metrics, [bench.make_engine(bench.model), bench.engine])


def test_a_model_is_ready_after_its_verification(readiness: Readiness, bench: Bench) -> None:
    assert isinstance(readiness.fault(), NotReadyError)
    assert bench.sample("model_ready") == 0
    readiness.verified = True
    assert readiness.fault() is None
    assert bench.sample("model_ready") == 1


def test_a_failed_engine_must_recover_and_be_verified_again(readiness: Readiness, bench: Bench) -> None:
    """Queued sequences may succeed before the next verification."""
    readiness.verified = True
    bench.model.decode_error = RuntimeError("device lost")
    with capture_logs():
        for _ in range(UNHEALTHY_FAILURES):
            bench.submit(7)
            bench.step()
    bench.model.decode_error = None
    assert isinstance(readiness.fault(), NotReadyError)
    bench.submit(7)
    bench.step()
    assert readiness.healthy
    assert not readiness.ready
    readiness.refresh()
    assert bench.sample("model_ready") == 0
    readiness.verified = True
    assert readiness.ready
