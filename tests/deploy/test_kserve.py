"""Dragoman as a predictor of KServe: valid, and the same pod as without KServe.

KServe's package, the only one with its schema, conflicts with our protobuf. So its few own fields are checked against a
shape of its API, and the fields of a pod against Kubernetes' schema.
"""

from typing import Any

import kubernetes_validate
import yaml

from tests.support.paths import ROOT
from tests.support.shapes import assert_shape

FOLDER = ROOT / "deploy" / "kubernetes"
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

Manifest = dict[str, Any]


def read(*path: str) -> Manifest:
    manifest: Manifest = yaml.safe_load(FOLDER.joinpath(*path).read_text())
    return manifest


def validate(manifest: Manifest) -> None:
    """Raises an error unless the manifest is valid; unknown fields are errors."""
    assert_shape(manifest, SHAPE)
    predictor = manifest["spec"]["predictor"]
    assert_shape({key: value for key, value in predictor.items() if key in EXTENSION}, EXTENSION)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "predictor"}, "spec": pod_of(predictor)}
    kubernetes_validate.validate(pod, KUBERNETES_VERSION, strict=True)


def pod_of(predictor: Manifest) -> Manifest:
    return {key: value for key, value in predictor.items() if key not in EXTENSION}


SERVICE = read("kserve", "inference-service.yaml")
PREDICTOR = SERVICE["spec"]["predictor"]
(CONTAINER,) = PREDICTOR["containers"]
BASE = read("base", "deployment.yaml")["spec"]["template"]["spec"]
(BASE_CONTAINER,) = BASE["containers"]


def test_the_inference_service_is_valid() -> None:
    validate(SERVICE)


def test_the_container_states_the_version_of_the_protocol() -> None:
    """It reads a variable of the container, and assumes version 1 without it."""
    assert {"name": "PROTOCOL", "value": "v2"} in CONTAINER["env"]
    assert CONTAINER["name"] == "kserve-container"


def test_the_container_is_that_of_the_deployment_without_kserve() -> None:
    own = {"name": BASE_CONTAINER["name"], "env": [item for item in CONTAINER["env"] if item["name"] != "PROTOCOL"]}
    resources = CONTAINER["resources"]
    assert {**CONTAINER, **own} == {**BASE_CONTAINER, "resources": resources}
    assert resources["limits"] == resources["requests"]


def test_the_pod_is_that_of_the_deployment_without_kserve() -> None:
    for field, value in pod_of(PREDICTOR).items():
        if field != "containers":
            assert BASE[field] == value


def test_rest_is_the_first_port_which_kserve_makes_that_of_its_service() -> None:
    assert CONTAINER["ports"][0]["name"] == "http"


def test_the_autoscaler_scales_the_deployment_of_kserve_by_the_load_of_engines() -> None:
    autoscaler, base = (read(folder, "horizontal-pod-autoscaler.yaml") for folder in ("kserve", "base"))
    kubernetes_validate.validate(autoscaler, KUBERNETES_VERSION, strict=True)
    assert autoscaler["spec"].pop("scaleTargetRef")["name"] == f"{SERVICE['metadata']['name']}-predictor"
    base["spec"].pop("scaleTargetRef")
    assert autoscaler["spec"] == base["spec"]
    assert autoscaler["spec"]["minReplicas"] == PREDICTOR["minReplicas"]


def test_every_file_is_in_the_kustomization() -> None:
    listed = set(read("kserve", "kustomization.yaml")["resources"])
    assert listed == {path.name for path in (FOLDER / "kserve").glob("*.yaml")} - {"kustomization.yaml"}
