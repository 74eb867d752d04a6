"""The settings of a deployment of Ray Serve and their effect."""

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from serve.ray_serve.application import deployment_options
from serve.ray_serve.proxy_methods import add_translation_service
from serve.ray_serve.settings import BROUGHT_BY_RAY, RaySettings
from serve.settings import ServeSettings
from tests.support.paths import ROOT

CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "deploy/ray/dragoman.yaml").read_text())
(APPLICATION,) = CONFIG["applications"]


def test_a_replica_uses_the_cpus_that_ray_reserves() -> None:
    settings = RaySettings(cpus_per_replica=6)
    assert (settings.engine_count, settings.engine_threads) == (6, 1)
    assert deployment_options(settings)["ray_actor_options"] == {"num_cpus": 6}


def test_in_latency_mode_a_replica_has_one_engine_with_all_cpus() -> None:
    settings = RaySettings(cpus_per_replica=6, mode="latency")
    assert (settings.engine_count, settings.engine_threads) == (1, 6)


@pytest.mark.parametrize("name", sorted(BROUGHT_BY_RAY))
def test_a_setting_without_effect_is_rejected_by_name(name: str) -> None:
    kind = ServeSettings.model_fields[name].annotation
    value = 1 if kind in (int, float) or "int" in str(kind) else "a"
    with pytest.raises(ValidationError, match=f"{name}: "):
        RaySettings.model_validate({name: value})


def test_the_environment_applies_as_for_dragoman_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray Serve builds the settings with `model_validate`, which ignores the environment for other models."""
    monkeypatch.setenv("DRAGOMAN_SLOTS", "7")
    assert RaySettings.model_validate({"queue_limit": 9}).model_dump(include={"slots", "queue_limit"}) == {
        "slots": 7,
        "queue_limit": 9,
    }


def test_a_maximum_of_replicas_below_the_minimum_is_rejected() -> None:
    with pytest.raises(ValidationError, match="max_replicas: 1"):
        RaySettings(min_replicas=2, max_replicas=1)


def test_the_settings_of_autoscaling_reach_ray() -> None:
    settings = RaySettings(
        min_replicas=2, max_replicas=5, look_back_seconds=6, upscale_delay_seconds=3, downscale_delay_seconds=4
    )
    assert deployment_options(settings)["autoscaling_config"] == {
        "min_replicas": 2,
        "max_replicas": 5,
        "look_back_period_s": 6,
        "metrics_interval_s": 2,
        "upscale_delay_s": 3,
        "downscale_delay_s": 4,
        "policy": {"policy_function": "serve.ray_serve.settings.count_replicas"},
    }


def test_a_replica_is_killed_only_after_the_time_to_drain() -> None:
    settings = RaySettings(drain_seconds=45)
    assert deployment_options(settings)["graceful_shutdown_timeout_s"] > 45


def test_the_shipped_configuration_is_valid_and_uses_the_ports_of_dragoman_serve() -> None:
    settings = RaySettings.model_validate(APPLICATION["args"])
    assert (settings.cpus_per_replica, settings.min_replicas, settings.max_replicas) == (2, 1, 10)
    assert APPLICATION["import_path"] == "serve.ray_serve.application:build"
    added = f"{add_translation_service.__module__}.{add_translation_service.__name__}"
    assert CONFIG["grpc_options"]["grpc_servicer_functions"] == [added]
    ports = {name: ServeSettings.model_fields[f"{name}_port"].default for name in ("http", "grpc")}
    assert {name: CONFIG[f"{name}_options"]["port"] for name in ports} == ports
