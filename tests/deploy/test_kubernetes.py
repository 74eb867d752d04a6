"""The chart of Kubernetes: what it renders is valid for the published schemas, and consistent with the server."""

import tomllib
from typing import Any

import kubernetes_validate
import pytest
import yaml

from dragoman.serve.settings import ServeSettings
from tests.support.charts import CHART, render, run_helm, server_pod
from tests.support.paths import ROOT
from tests.support.shapes import assert_shape

KUBERNETES_VERSION = "1.33"
OPERATOR = "monitoring.coreos.com/v1"
EXPECTED: dict[str, Any] = yaml.safe_load((ROOT / "tests" / "deploy" / "chart.yaml").read_text(encoding="utf-8"))
# Settings whose values the chart makes from others, or which it fixes.
OF_CHART = {"config", "host", "http_port", "grpc_port", "state_dir", "state_url", "on_demand", "admin_key", "api_keys"}
OF_CHART |= {"admin_key_file", "api_keys_file", "tls_certificate_file", "tls_key_file", "tls_client_ca_file"}

# The custom resources of the Prometheus operator, from its API documentation: no package has their schemas.
RULE = {"alert": str, "expr": str, "for": r"\d+[sm]", "labels": dict, "annotations": dict}
ENDPOINT = {"port": str, "path": str, "interval": r"\d+s"}
ENDPOINTS = {False: ENDPOINT, True: ENDPOINT | {"scheme": "https", "tlsConfig": {"insecureSkipVerify": bool}}}

each_configuration = pytest.mark.parametrize("name", list(EXPECTED["configurations"]))


def validate(manifest: dict[str, Any]) -> None:
    """Raises an error unless the manifest is valid; unknown fields are errors."""
    if manifest["apiVersion"] == OPERATOR:
        assert set(manifest["metadata"]) <= {"name", "namespace", "labels"}
        endpoint = ENDPOINTS["scheme" in str(manifest["spec"])]
        monitor = {"jobLabel": str, "selector": {"matchLabels": dict}, "endpoints": [endpoint]}
        specs = {"ServiceMonitor": monitor, "PrometheusRule": {"groups": [{"name": str, "rules": [RULE]}]}}
        spec = specs[manifest["kind"]]
        assert_shape(manifest, {"apiVersion": OPERATOR, "kind": str, "metadata": dict, "spec": spec})
    else:
        kubernetes_validate.validate(manifest, KUBERNETES_VERSION, strict=True)


@each_configuration
def test_a_configuration_has_its_resources_and_all_are_valid(name: str) -> None:
    manifests = render(name)
    assert {kind for kind, _ in manifests} == {*EXPECTED["all"], *EXPECTED["configurations"][name]}
    for manifest in manifests.values():
        validate(manifest)


def test_every_example_is_a_configuration_of_the_tests() -> None:
    assert {path.stem for path in (CHART / "examples").iterdir()} == EXPECTED["configurations"].keys() - {"default"}


@pytest.mark.parametrize("rule", EXPECTED["rules"], ids=lambda rule: rule["rule"])
def test_a_rule_holds(rule: dict[str, Any]) -> None:
    for name in rule.get("in", EXPECTED["configurations"]):
        manifests = render(name, *rule.get("values", []))
        for path, expected in rule["at"].items():
            kind, of, *keys = path.split("/")
            found: Any = manifests[kind, of]
            for key in keys:
                found = found[int(key) if key.isdigit() else key]
            assert found == expected, (name, path)


@pytest.mark.parametrize("case", EXPECTED["wrong"], ids=lambda case: " ".join(case["values"]))
def test_a_wrong_value_is_refused_by_name(case: dict[str, Any]) -> None:
    done = run_helm("default", *case["values"])
    assert done.returncode != 0
    assert case["names"] in done.stderr


def test_the_chart_has_the_version_of_dragoman() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert chart["version"] == chart["appVersion"] == version


def test_values_hold_every_setting_of_the_server_that_the_chart_does_not_make() -> None:
    schema = yaml.safe_load((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert schema["properties"]["settings"]["properties"].keys() == ServeSettings.model_fields.keys() - OF_CHART


@each_configuration
def test_the_server_accepts_its_variables_and_has_time_to_leave(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod leaves the endpoints before its lame duck is over, and is killed only after lame duck and drain."""
    pod = server_pod(name)
    (container,) = pod["containers"]
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], variable.get("value", "postgresql://server/database"))
    settings, probe = ServeSettings(), container["readinessProbe"]
    names = {variable["name"].removeprefix("DRAGOMAN_").lower() for variable in container["env"]}
    assert names - {"cache", "hf_home"} == settings.model_fields_set
    assert pod["terminationGracePeriodSeconds"] > settings.lame_duck_seconds + settings.drain_seconds
    noticed_seconds = probe["periodSeconds"] * probe["failureThreshold"] + probe["timeoutSeconds"]
    assert noticed_seconds < settings.lame_duck_seconds


def test_settings_of_any_type_reach_the_server_as_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    given = '{"drain_seconds":1e2,"memory_limit":1e10,"trace_sample_ratio":0.25,"page":false,"cors_origins":["https://a.test"]}'
    pod = server_pod("default", f"settings={given}", "settings.models.en-de.slots=64")
    for variable in pod["containers"][0]["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])
    settings = ServeSettings()
    assert (settings.memory_limit, settings.trace_sample_ratio, settings.page) == (10_000_000_000, 0.25, False)
    assert (settings.cors_origins, settings.models["en-de"].slots) == (("https://a.test",), 64)
    assert pod["terminationGracePeriodSeconds"] > settings.lame_duck_seconds + 100


@pytest.mark.parametrize("case", EXPECTED["rows"], ids=lambda case: " ".join([case["example"], *case["values"]]))
def test_the_autoscaler_adds_pods_before_all_slots_are_taken(case: dict[str, Any]) -> None:
    manifests = render(case["example"], *case["values"])
    assert "replicas" not in manifests["Deployment", "dragoman"]["spec"]
    metrics = manifests["HorizontalPodAutoscaler", "dragoman"]["spec"]["metrics"]
    wanted = {metric["pods"]["metric"]["name"]: metric["pods"]["target"]["averageValue"] for metric in metrics}
    assert wanted == {"dragoman_rows_running": str(case["rows"]), "dragoman_sequences_waiting": "8"}


def test_alerts_equal_those_of_compose() -> None:
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yaml").read_text(encoding="utf-8"))
    assert render("autoscaling")["PrometheusRule", "dragoman"]["spec"] == rules
