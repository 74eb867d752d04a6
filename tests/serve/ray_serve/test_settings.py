"""The settings of a deployment of Ray Serve and their effect, and the number of replicas for a load."""

from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from dragoman.serve.ray_serve.application import deployment_options
from dragoman.serve.ray_serve.proxy_methods import add_translation_service
from dragoman.serve.ray_serve.settings import BROUGHT_BY_RAY, WANTED_SHARE, WANTED_WAITING, RaySettings, count_replicas
from dragoman.serve.settings import ServeSettings
from tests.support.paths import ROOT

CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "deploy/ray/dragoman.yaml").read_text())
(APPLICATION,) = CONFIG["applications"]
AUTOSCALER = ROOT / "deploy/kubernetes/kserve/horizontal-pod-autoscaler.yaml"


@pytest.mark.parametrize(("mode", "engines", "threads"), [("throughput", 6, 1), ("latency", 1, 6)])
def test_a_replica_uses_the_cpus_that_ray_reserves(mode: Any, engines: int, threads: int) -> None:
    settings = RaySettings(cpus_per_replica=6, mode=mode)
    assert (settings.engine_count, settings.engine_threads) == (engines, threads)
    assert deployment_options(settings)["ray_actor_options"] == {"num_cpus": 6}


@pytest.mark.parametrize("name", sorted(BROUGHT_BY_RAY))
def test_a_setting_without_effect_is_rejected_by_name(name: str) -> None:
    kind = ServeSettings.model_fields[name].annotation
    value = 1 if kind in (int, float) or "int" in str(kind) else "a"
    with pytest.raises(ValidationError, match=f"{name}: "):
        RaySettings.model_validate({name: value})


def test_a_maximum_of_replicas_below_the_minimum_is_rejected() -> None:
    with pytest.raises(ValidationError, match="max_replicas: 1"):
        RaySettings(min_replicas=2, max_replicas=1)


def test_the_environment_applies_as_for_dragoman_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray Serve builds the settings with `model_validate`, which ignores the environment for other models."""
    monkeypatch.setenv("DRAGOMAN_SLOTS", "7")
    settings = RaySettings.model_validate({"queue_limit": 9})
    assert (settings.slots, settings.queue_limit) == (7, 9)


def test_the_settings_of_autoscaling_and_drain_reach_ray() -> None:
    scaling: dict[str, Any] = {"min_replicas": 2, "max_replicas": 5, "look_back_seconds": 6}
    delays: dict[str, Any] = {"upscale_delay_seconds": 3, "downscale_delay_seconds": 4}
    options = deployment_options(RaySettings(**scaling, **delays, drain_seconds=45))
    assert options["autoscaling_config"] == {
        "min_replicas": 2,
        "max_replicas": 5,
        "look_back_period_s": 6,
        "metrics_interval_s": 2,
        "upscale_delay_s": 3,
        "downscale_delay_s": 4,
        "policy": {"policy_function": "dragoman.serve.ray_serve.settings.count_replicas"},
    }
    assert options["graceful_shutdown_timeout_s"] > 45


def test_the_shipped_configuration_is_valid_and_uses_the_ports_of_dragoman_serve() -> None:
    settings = RaySettings.model_validate(APPLICATION["args"])
    assert (settings.cpus_per_replica, settings.min_replicas, settings.max_replicas) == (2, 1, 10)
    assert APPLICATION["import_path"] == "dragoman.serve.ray_serve.application:build"
    added = f"{add_translation_service.__module__}.{add_translation_service.__name__}"
    assert CONFIG["grpc_options"]["grpc_servicer_functions"] == [added]
    ports = {name: ServeSettings.model_fields[f"{name}_port"].default for name in ("http", "grpc")}
    assert {name: CONFIG[f"{name}_options"]["port"] for name in ports} == ports


@pytest.mark.parametrize(
    ("loads", "wanted"),
    [
        pytest.param([(48, 0), (48, 0)], 2, id="three quarters of the slots are used"),
        pytest.param([(64, 0)], 4 / 3, id="more rows"),
        pytest.param([(0, 24), (0, 0)], 3, id="a long queue"),
        pytest.param([(0, 0), (0, 0)], 0, id="no load"),
    ],
)
def test_rows_and_queue_determine_the_number_of_replicas(loads: list[tuple[float, float]], wanted: float) -> None:
    """The loads are running rows and waiting sequences of each replica, which has 64 slots."""
    reported = {
        "rows_running": {number: rows for number, (rows, _) in enumerate(loads)},
        "sequences_waiting": {number: waiting for number, (_, waiting) in enumerate(loads)},
        "slots": dict.fromkeys(range(len(loads)), 64),
    }
    count, state = count_replicas(SimpleNamespace(aggregated_metrics=reported, target_num_replicas=7))
    assert count == pytest.approx(wanted)
    assert state == {}


@pytest.mark.parametrize("reported", [{}, None])
def test_without_reports_the_number_of_replicas_stays(reported: dict[str, Any] | None) -> None:
    assert count_replicas(SimpleNamespace(aggregated_metrics=reported, target_num_replicas=7)) == (7, {})


def test_the_autoscaler_of_kubernetes_has_the_same_rule() -> None:
    metrics = yaml.safe_load(AUTOSCALER.read_text())["spec"]["metrics"]
    targets = {metric["pods"]["metric"]["name"]: int(metric["pods"]["target"]["averageValue"]) for metric in metrics}
    slots = 2 * ServeSettings.model_fields["slots"].default
    assert targets == {"dragoman_rows_running": WANTED_SHARE * slots, "dragoman_sequences_waiting": WANTED_WAITING}
