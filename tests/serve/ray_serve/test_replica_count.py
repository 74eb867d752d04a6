"""The number of replicas for a load, the same for Kubernetes and Ray Serve."""

from types import SimpleNamespace

import pytest
import yaml

from serve.ray_serve.settings import WANTED_SHARE, WANTED_WAITING, count_replicas
from serve.settings import ServeSettings
from tests.support.paths import ROOT

AUTOSCALER = ROOT / "deploy/kubernetes/base/horizontal-pod-autoscaler.yaml"


def wanted(*replicas: tuple[float, float], slots: float = 64) -> float:
    """Returns the wanted number of replicas, given running rows and waiting sequences of each."""
    reported = {
        "rows_running": {number: rows for number, (rows, _) in enumerate(replicas)},
        "sequences_waiting": {number: waiting for number, (_, waiting) in enumerate(replicas)},
        "slots": dict.fromkeys(range(len(replicas)), slots),
    }
    count, remembered = count_replicas(SimpleNamespace(aggregated_metrics=reported, target_num_replicas=7))
    assert remembered == {}
    return count


def test_each_replica_should_use_three_quarters_of_its_slots() -> None:
    assert wanted((48, 0), (48, 0)) == 2


def test_more_rows_require_more_replicas() -> None:
    assert wanted((64, 0)) == pytest.approx(4 / 3)


def test_a_long_queue_requires_more_replicas() -> None:
    assert wanted((0, 24), (0, 0)) == 3


def test_without_load_the_minimum_applies() -> None:
    assert wanted((0, 0), (0, 0)) == 0


def test_without_reports_the_number_stays() -> None:
    assert count_replicas(SimpleNamespace(aggregated_metrics={}, target_num_replicas=7)) == (7, {})
    assert count_replicas(SimpleNamespace(aggregated_metrics=None, target_num_replicas=7)) == (7, {})


def test_the_autoscaler_of_kubernetes_has_the_same_rule() -> None:
    metrics = yaml.safe_load(AUTOSCALER.read_text())["spec"]["metrics"]
    targets = {each["pods"]["metric"]["name"]: int(each["pods"]["target"]["averageValue"]) for each in metrics}
    slots = 2 * ServeSettings.model_fields["slots"].default
    assert targets == {
        "dragoman_rows_running": WANTED_SHARE * slots,
        "dragoman_sequences_waiting": WANTED_WAITING,
    }
