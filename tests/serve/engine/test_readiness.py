"""When a model translates requests: after its golden sentences came out right, while its engines are well."""

from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry

from serve.engine.readiness import Readiness
from serve.errors import NotReadyError
from serve.observability.metrics import Metrics


@dataclass
class Engines:
    """What is known of engines."""

    healthy: bool = True
    hanging: bool = False
    failure_count: int = 0


@pytest.fixture
def engines() -> Engines:
    return Engines()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def readiness(engines: Engines, registry: CollectorRegistry) -> Readiness:
    metrics = Metrics(registry, "tiny")
    return Readiness(metrics, lambda: engines.healthy, lambda: engines.hanging, lambda: engines.failure_count)


def gauge(registry: CollectorRegistry) -> float | None:
    return registry.get_sample_value("dragoman_model_ready", {"model": "tiny"})


def test_nothing_is_let_in_before_the_proof(readiness: Readiness, registry: CollectorRegistry) -> None:
    with pytest.raises(NotReadyError, match="warming up"):
        readiness.check()
    assert gauge(registry) == 0
    readiness.verified = True
    readiness.check()
    assert gauge(registry) == 1


def test_nothing_is_let_in_while_an_engine_fails(readiness: Readiness, engines: Engines) -> None:
    readiness.verified = True
    engines.healthy = False
    with pytest.raises(NotReadyError, match="the model failed"):
        readiness.check()


def test_who_fell_has_to_prove_itself_again_even_if_nobody_saw_it(
    readiness: Readiness, engines: Engines, registry: CollectorRegistry
) -> None:
    """What was in the queue may succeed before anybody looks."""
    readiness.verified = True
    engines.failure_count += 1
    assert not readiness.ready
    readiness.refresh()
    assert gauge(registry) == 0
    readiness.verified = True
    assert readiness.ready
