"""Kubernetes manifests: valid for the published schemas, and consistent with the server."""

import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import kubernetes_validate
import pytest
import yaml

from dragoman.serve.settings import ServeSettings
from tests.support.paths import ROOT
from tests.support.shapes import assert_shape

FOLDER = ROOT / "deploy" / "kubernetes"
KUBERNETES_VERSION = "1.33"
OPERATOR = "monitoring.coreos.com/v1"
POD_LABELS = {"app.kubernetes.io/name": "dragoman"}
PORTS = {"http": 8000, "grpc": 8001}

# The custom resources of the Prometheus operator, from its API documentation: no package has their schemas.
RULE = {"alert": str, "expr": str, "for": r"\d+[sm]", "labels": dict, "annotations": dict}
OPERATOR_SPECS = {
    "ServiceMonitor": {
        "selector": {"matchLabels": dict},
        "endpoints": [{"port": str, "path": str, "interval": r"\d+s"}],
    },
    "PrometheusRule": {"groups": [{"name": str, "rules": [RULE]}]},
}

# A manifest as it was read.
Manifest = dict[str, Any]


def read_base() -> Iterator[Manifest]:
    for path in sorted((FOLDER / "base").glob("*.yaml")):
        if path.name != "kustomization.yaml":
            yield from yaml.safe_load_all(path.read_text())


def render(overlay: str) -> list[Manifest]:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    rendered = subprocess.run([kubectl, "kustomize", FOLDER / "overlays" / overlay], check=True, capture_output=True)
    return list(yaml.safe_load_all(rendered.stdout))


BASE = {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in read_base()}
POD = BASE["Deployment", "dragoman"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def validate(manifest: Manifest) -> None:
    """Raises an error unless the manifest is valid; unknown fields are errors."""
    if manifest["apiVersion"] == OPERATOR:
        assert set(manifest["metadata"]) <= {"name", "namespace", "labels"}
        spec = OPERATOR_SPECS[manifest["kind"]]
        assert_shape(manifest, {"apiVersion": OPERATOR, "kind": str, "metadata": dict, "spec": spec})
    else:
        kubernetes_validate.validate(manifest, KUBERNETES_VERSION, strict=True)


def environment(name: str) -> float:
    (value,) = (variable["value"] for variable in CONTAINER["env"] if variable["name"] == name)
    return float(value)


@pytest.mark.parametrize("name", sorted(BASE), ids=" ".join)
def test_a_manifest_is_valid(name: tuple[str, str]) -> None:
    validate(BASE[name])


@pytest.mark.parametrize(("overlay", "more"), [("cpu", ()), ("cuda", ()), ("models", ("PersistentVolumeClaim",))])
def test_every_rendered_manifest_of_an_overlay_is_valid(overlay: str, more: tuple[str, ...]) -> None:
    manifests = render(overlay)
    assert {manifest["kind"] for manifest in manifests} == {*more, *(kind for kind, _ in BASE)}
    for manifest in manifests:
        validate(manifest)


def test_every_file_of_the_base_is_in_its_kustomization() -> None:
    listed = yaml.safe_load((FOLDER / "base" / "kustomization.yaml").read_text())["resources"]
    assert set(listed) == {path.name for path in (FOLDER / "base").glob("*.yaml")} - {"kustomization.yaml"}


def test_every_selector_selects_the_pods_of_the_deployment() -> None:
    assert BASE["Deployment", "dragoman"]["spec"]["template"]["metadata"]["labels"] == POD_LABELS
    assert BASE["Deployment", "dragoman"]["spec"]["selector"] == {"matchLabels": POD_LABELS}
    assert BASE["PodDisruptionBudget", "dragoman"]["spec"]["selector"] == {"matchLabels": POD_LABELS}
    assert BASE["NetworkPolicy", "dragoman"]["spec"]["podSelector"] == {"matchLabels": POD_LABELS}
    for service in ("dragoman", "dragoman-grpc"):
        assert BASE["Service", service]["spec"]["selector"] == POD_LABELS


def test_ports_are_those_that_the_server_listens_on() -> None:
    fields = ServeSettings.model_fields
    assert {"http": fields["http_port"].default, "grpc": fields["grpc_port"].default} == PORTS
    assert {port["name"]: port["containerPort"] for port in CONTAINER["ports"]} == PORTS
    assert [port["port"] for port in BASE["NetworkPolicy", "dragoman"]["spec"]["ingress"][0]["ports"]] == [*PORTS]
    for service in ("dragoman", "dragoman-grpc"):
        (port,) = BASE["Service", service]["spec"]["ports"]
        assert PORTS[port["targetPort"]] == port["port"]


def test_environment_variables_are_settings_of_the_server() -> None:
    names = {f"DRAGOMAN_{field.upper()}" for field in ServeSettings.model_fields}
    assert {variable["name"] for variable in CONTAINER["env"]} <= names


def test_a_pod_is_killed_only_after_its_lame_duck_and_drain_times() -> None:
    allowed = environment("DRAGOMAN_LAME_DUCK_SECONDS") + environment("DRAGOMAN_DRAIN_SECONDS")
    assert POD["terminationGracePeriodSeconds"] > allowed


def test_a_draining_pod_is_not_ready_but_live() -> None:
    """If liveness probed readiness, Kubernetes would kill a draining server."""
    probes = {name: CONTAINER[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")}
    assert probes == {"startup": "/readyz", "readiness": "/readyz", "liveness": "/healthz"}


def test_a_pod_leaves_the_endpoints_before_its_lame_duck_time_is_over() -> None:
    probe = CONTAINER["readinessProbe"]
    noticed_seconds = probe["periodSeconds"] * probe["failureThreshold"] + probe["timeoutSeconds"]
    assert noticed_seconds < environment("DRAGOMAN_LAME_DUCK_SECONDS")


def test_the_autoscaler_sets_the_number_of_replicas_and_no_update_stops_a_pod_before_its_successor_is_ready() -> None:
    specification = BASE["Deployment", "dragoman"]["spec"]
    assert "replicas" not in specification
    assert specification["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_the_container_has_no_privileges() -> None:
    assert POD["securityContext"]["runAsNonRoot"] is True
    context = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert CONTAINER["securityContext"] == context


def test_grpc_clients_resolve_the_address_of_every_replica() -> None:
    assert BASE["Service", "dragoman-grpc"]["spec"]["clusterIP"] == "None"


@pytest.mark.parametrize("overlay", ["cpu", "cuda"])
def test_a_replica_requests_as_many_cpus_as_its_limit(overlay: str) -> None:
    """The server starts one engine per CPU of its limit."""
    (pod,) = (manifest["spec"]["template"]["spec"] for manifest in render(overlay) if manifest["kind"] == "Deployment")
    resources = pod["containers"][0]["resources"]
    assert resources["limits"] == resources["requests"]


def test_an_init_container_pulls_the_models_that_the_server_reads() -> None:
    (pod,) = (manifest["spec"]["template"]["spec"] for manifest in render("models") if manifest["kind"] == "Deployment")
    (pull,), (server,) = pod["initContainers"], pod["containers"]
    bundle = next(item["value"] for item in server["env"] if item["name"] == "DRAGOMAN_BUNDLE")
    assert f"dragoman pull --to {bundle} " in pull["args"][0]
    (volume,) = server["volumeMounts"]
    assert bundle.startswith(volume["mountPath"])
    assert volume["readOnly"]
    assert pull["securityContext"] == server["securityContext"]


@pytest.mark.parametrize(("overlay", "device"), [("cpu", "cpu"), ("cuda", "nvidia.com/gpu"), ("models", "cpu")])
def test_the_autoscaler_adds_replicas_before_all_slots_are_taken(overlay: str, device: str) -> None:
    """The server has one engine per CPU or GPU."""
    manifests = {manifest["kind"]: manifest for manifest in render(overlay)}
    (container,) = manifests["Deployment"]["spec"]["template"]["spec"]["containers"]
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    slots = int(variables.get("DRAGOMAN_SLOTS", ServeSettings.model_fields["slots"].default))
    metrics = manifests["HorizontalPodAutoscaler"]["spec"]["metrics"]
    wanted = {metric["pods"]["metric"]["name"]: int(metric["pods"]["target"]["averageValue"]) for metric in metrics}
    assert wanted["dragoman_rows_running"] == int(container["resources"]["limits"][device]) * slots * 3 // 4


DNS = [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]


@pytest.mark.parametrize(
    ("overlay", "egress"),
    [("cpu", []), ("cuda", []), ("models", [{"ports": [*DNS, {"port": 443, "protocol": "TCP"}]}])],
)
def test_pods_open_no_connections_but_those_of_downloads(overlay: str, egress: list[Manifest]) -> None:
    (policy,) = (manifest["spec"] for manifest in render(overlay) if manifest["kind"] == "NetworkPolicy")
    assert policy["egress"] == egress
    assert "Egress" in policy["policyTypes"]


def test_alerts_equal_those_of_compose() -> None:
    rules = yaml.safe_load((FOLDER.parent / "prometheus" / "rules.yaml").read_text())
    assert BASE["PrometheusRule", "dragoman"]["spec"] == rules
