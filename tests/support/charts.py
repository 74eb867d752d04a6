"""The chart of `deploy/chart` as helm renders it."""

import os
import re
import shutil
import subprocess
from functools import cache
from typing import Any

import pytest
import yaml

from tests.support.paths import ROOT

CHART = ROOT / "deploy" / "chart"
# Manifests by kind and name.
Manifests = dict[tuple[str, str], dict[str, Any]]


def run_helm(example: str, *values: str) -> "subprocess.CompletedProcess[str]":
    """Renders one of the examples with further values, as in `replicas=1`; skips the test without helm."""
    helm = shutil.which("helm", path=f"{os.environ['PATH']}{os.pathsep}{ROOT / '.helm'}")
    if helm is None:
        pytest.skip("needs helm: tests/unpack_helm.sh")
    command = [helm, "template", "dragoman", str(CHART), "--namespace", "dragoman"]
    if example != "default":
        command += ["--values", str(CHART / "examples" / f"{example}.yaml")]
    command += [word for value in values for word in ("--set-json" if re.search(r"=[{\[]", value) else "--set", value)]
    return subprocess.run(command, check=False, capture_output=True, encoding="utf-8")


@cache
def render(example: str, *values: str) -> Manifests:
    done = run_helm(example, *values)
    assert done.returncode == 0, done.stderr
    manifests = [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]
    found = {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in manifests}
    assert len(found) == len(manifests)
    return found


def server_pod(example: str, *values: str) -> dict[str, Any]:
    specification: dict[str, Any] = render(example, *values)["Deployment", "dragoman"]["spec"]["template"]["spec"]
    return specification
