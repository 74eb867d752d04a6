"""`compose.yaml` matches its mounted files and the server."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman.serve.settings import ServeSettings
from tests.support.paths import ROOT

SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
SERVER = SERVICES["dragoman"]


def test_every_file_that_is_mounted_exists_and_is_read_only() -> None:
    mounts = [mount for service in SERVICES.values() for mount in service.get("volumes", ())]
    files = [mount for mount in mounts if mount.startswith("./")]
    assert files
    assert [mount for mount in files if not (ROOT / mount.split(":")[0]).exists()] == []
    assert all(mount.endswith(":ro") for mount in files)


def test_models_are_pulled_into_a_volume_before_the_server_starts() -> None:
    services = yaml.safe_load((ROOT / "compose.models.yaml").read_text())["services"]
    pull, server = services["pull"], services["dragoman"]
    bundle = server["environment"]["DRAGOMAN_BUNDLE"]
    assert f"dragoman pull --to {bundle} " in pull["command"][0]
    assert server["volumes"] == ["models:/models:ro"]
    assert server["depends_on"] == {"pull": {"condition": "service_completed_successfully"}}
    assert {"mem_limit", "pids_limit", "read_only", "cap_drop", "security_opt"} <= set(pull)


@pytest.mark.parametrize(("is_served", "status"), [(True, 0), (False, 1)])
def test_a_list_of_models_is_pulled_and_without_a_network_the_volume_decides(
    is_served: bool, status: int, tmp_path: Path
) -> None:
    """The names may be on several lines. A failed pull ends the start only if the volume is empty."""
    pull = yaml.safe_load((ROOT / "compose.models.yaml").read_text())["services"]["pull"]
    (tmp_path / "dragoman").write_text('#!/bin/sh\necho "$@"\nexit 1\n')
    (tmp_path / "dragoman").chmod(0o755)
    if is_served:
        (tmp_path / "served").mkdir()
    command = pull["command"][0].replace("$$", "$").replace("/models", str(tmp_path))
    variables = {"MODELS": "en-de\nde-en\n", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(
        [*pull["entrypoint"], command], env=variables, capture_output=True, encoding="utf-8", check=False
    )
    assert (done.returncode, done.stdout) == (status, f"pull --to {tmp_path}/served en-de de-en\n")


def test_third_party_images_are_pinned_by_version() -> None:
    images = [service["image"] for service in SERVICES.values() if "build" not in service]
    assert len(images) == 2
    assert all(re.search(r":v?\d+\.\d+\.\d+$", image) for image in images)


def test_the_server_is_killed_only_after_its_lame_duck_and_drain_times() -> None:
    fields = ServeSettings.model_fields
    grace_seconds = int(SERVER["stop_grace_period"].removesuffix("s"))
    assert grace_seconds > fields["lame_duck_seconds"].default + fields["drain_seconds"].default


def test_the_file_system_of_the_server_is_read_only() -> None:
    assert SERVER["read_only"] is True
    assert SERVER["cap_drop"] == ["ALL"]


def test_nothing_is_reachable_from_other_machines() -> None:
    assert all(port.startswith("127.0.0.1:") for service in SERVICES.values() for port in service["ports"])


def test_the_server_requires_keys() -> None:
    assert SERVER["environment"]["DRAGOMAN_API_KEYS"].startswith("${DRAGOMAN_API_KEYS:?")


def test_every_service_has_limits() -> None:
    assert all({"mem_limit", "pids_limit"} <= set(service) for service in SERVICES.values())


def test_prometheus_scrapes_the_port_of_the_server() -> None:
    (job,) = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yaml").read_text())["scrape_configs"]
    (discovery,) = job["dns_sd_configs"]
    assert (job["job_name"], discovery["names"]) == ("dragoman", ["dragoman"])
    assert discovery["port"] == ServeSettings.model_fields["http_port"].default


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    (source,) = yaml.safe_load((ROOT / "deploy" / "grafana" / "datasources.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert f'"uid": "{source["uid"]}"' in (ROOT / "deploy" / "grafana" / "dashboards" / "dragoman.json").read_text()
    (provider,) = yaml.safe_load((ROOT / "deploy" / "grafana" / "dashboards.yaml").read_text())["providers"]
    assert f"./deploy/grafana/dashboards:{provider['options']['path']}:ro" in SERVICES["grafana"]["volumes"]
