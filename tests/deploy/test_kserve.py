"""Dragoman as a predictor of KServe: valid, and the same pod as without KServe.

KServe's package, the only one with its schema, conflicts with our protobuf. So its few own fields are checked against a
shape of its API, and the fields of a pod against Kubernetes' schema.
"""

from typing import Any

import kubernetes_validate
import yaml

from tests.support.charts import render, server_pod
from tests.support.paths import ROOT
from tests.support.shapes import assert_shape

FOLDER = ROOT / "deploy" / "kubernetes" / "kserve"
KUBERNETES_VERSION = "1.33"
# The used fields of KServe beyond those of a pod.
EXTENSION = {"minReplicas": int}
ANNOTATIONS = {"serving.kserve.io/deploymentMode": "Standard|Knative"}
ANNOTATIONS |= {"serving.kserve.io/autoscalerClass": "hpa|external|keda|none"}
SHAPE = {
    "apiVersion": "serving.kserve.io/v1beta1",
    "kind": "InferenceService",
    "metadata": {"name": str, "annotations": ANNOTATIONS},
    "spec": {"predictor": dict},
}


def read(name: str) -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return manifest


SERVICE = read("inference-service")
PREDICTOR = SERVICE["spec"]["predictor"]
POD = {key: value for key, value in PREDICTOR.items() if key not in EXTENSION}
(CONTAINER,) = PREDICTOR["containers"]


def test_the_inference_service_is_valid_without_unknown_fields() -> None:
    assert_shape(SERVICE, SHAPE)
    assert_shape({key: value for key, value in PREDICTOR.items() if key not in POD}, EXTENSION)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "predictor"}, "spec": POD}
    kubernetes_validate.validate(pod, KUBERNETES_VERSION, strict=True)


def test_the_container_states_the_version_of_the_protocol() -> None:
    """It reads a variable of the container, and assumes version 1 without it."""
    assert {"name": "PROTOCOL", "value": "v2"} in CONTAINER["env"]
    assert CONTAINER["name"] == "kserve-container"


def test_the_pod_and_its_container_are_those_of_the_chart() -> None:
    pod = server_pod("default")
    (container,) = pod["containers"]
    own = {field: container[field] for field in ("name", "image", "imagePullPolicy")}
    env = [variable for variable in CONTAINER["env"] if variable["name"] != "PROTOCOL"]
    assert {**CONTAINER, **own, "env": sorted(env, key=lambda variable: variable["name"])} == container
    assert {**pod, **POD, "containers": [container]} == pod


def test_rest_is_the_first_port_which_kserve_makes_that_of_its_service() -> None:
    assert CONTAINER["ports"][0]["name"] == "http"


def test_the_autoscaler_scales_the_deployment_of_kserve_by_the_load_of_engines() -> None:
    autoscaler = read("horizontal-pod-autoscaler")
    kubernetes_validate.validate(autoscaler, KUBERNETES_VERSION, strict=True)
    target = autoscaler["spec"]["scaleTargetRef"]
    assert target["name"] == f"{SERVICE['metadata']['name']}-predictor"
    of_chart = render("autoscaling")["HorizontalPodAutoscaler", "dragoman"]["spec"]
    assert autoscaler["spec"] == of_chart | {"scaleTargetRef": target}
    assert autoscaler["spec"]["minReplicas"] == PREDICTOR["minReplicas"]


def test_every_file_is_in_the_kustomization() -> None:
    listed = set(read("kustomization")["resources"])
    assert listed == {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
