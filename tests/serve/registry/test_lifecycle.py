"""The stages of the service: admission and probes."""

import pytest

from serve.errors import DrainingError, NotReadyError
from serve.observability.metrics import ServiceMetrics
from serve.registry.lifecycle import Lifecycle, Stage
from serve.registry.registry import ModelRegistry


def lifecycle(stage: Stage) -> Lifecycle:
    lifecycle = Lifecycle(ServiceMetrics(), ModelRegistry([]))
    lifecycle.enter(stage)
    return lifecycle


@pytest.mark.parametrize(("stage", "error"), [(Stage.STARTING, NotReadyError), (Stage.DRAINING, DrainingError)])
def test_nothing_is_let_in_before_and_after_serving(stage: Stage, error: type[Exception]) -> None:
    with pytest.raises(error):
        lifecycle(stage).check_admission()


def test_a_ready_service_lets_requests_in_and_says_so() -> None:
    ready = lifecycle(Stage.READY)
    ready.check_admission()
    assert ready.unready_reason() is None
    assert not ready.leaving
