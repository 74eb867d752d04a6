"""How many replicas the load needs, and that Kubernetes and Ray Serve are told the same."""

from types import SimpleNamespace

import pytest
import yaml

from serve.ray_serve.settings import WANTED_SHARE, WANTED_WAITING, count_replicas
from serve.settings import ServeSettings
from tests.support.paths import ROOT

AUTOSCALER = ROOT / "deploy/kubernetes/base/horizontal-pod-autoscaler.yaml"


def wanted(*replicas: tuple[float, float], slots: float = 64) -> float:
    """Returns how many are wanted when there are these, each with rows that run and sequences that wait."""
    reported = {
        "rows_running": {number: rows for number, (rows, _) in enumerate(replicas)},
        "sequences_waiting": {number: waiting for number, (_, waiting) in enumerate(replicas)},
        "slots": dict.fromkeys(range(len(replicas)), slots),
    }
    count, remembered = count_replicas(SimpleNamespace(aggregated_metrics=reported, target_num_replicas=7))
    assert remembered == {}
    return count


def test_three_quarters_of_the_slots_of_every_replica_are_what_it_should_run() -> None:
    assert wanted((48, 0), (48, 0)) == 2


def test_rows_beyond_that_want_more_replicas() -> None:
    assert wanted((64, 0)) == pytest.approx(4 / 3)


def test_a_long_queue_wants_more_replicas_whatever_runs() -> None:
    assert wanted((0, 24), (0, 0)) == 3


def test_nothing_to_do_wants_none_so_that_the_least_number_decides() -> None:
    assert wanted((0, 0), (0, 0)) == 0


def test_what_nobody_has_reported_changes_nothing() -> None:
    assert count_replicas(SimpleNamespace(aggregated_metrics={}, target_num_replicas=7)) == (7, {})
    assert count_replicas(SimpleNamespace(aggregated_metrics=None, target_num_replicas=7)) == (7, {})


def test_the_autoscaler_of_kubernetes_wants_the_same() -> None:
    metrics = yaml.safe_load(AUTOSCALER.read_text())["spec"]["metrics"]
    targets = {each["pods"]["metric"]["name"]: int(each["pods"]["target"]["averageValue"]) for each in metrics}
    slots = 2 * ServeSettings.model_fields["slots"].default
    assert targets == {
        "dragoman_rows_running": WANTED_SHARE * slots,
        "dragoman_sequences_waiting": WANTED_WAITING,
    }
