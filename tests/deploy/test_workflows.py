"""Properties of the workflows without a run: pinned actions, least permissions, audited packages, labels of images."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.support.paths import ROOT

PATHS = sorted((ROOT / ".github" / "workflows").iterdir())
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in PATHS}
WORKFLOWS: dict[str, dict[str, Any]] = {name: yaml.safe_load(text) for name, text in TEXTS.items()}
# Jobs that publish, and what they write.
ATTESTATION = {"id-token", "attestations"}
WRITERS = {"distributions": {"contents", *ATTESTATION}, "images": {"packages", *ATTESTATION}}
WRITERS |= {"index": WRITERS["images"], "pypi": {"id-token"}, "pages": {"contents"}, "analyze": {"security-events"}}

each_workflow = pytest.mark.parametrize("name", list(WORKFLOWS))


def jobs(name: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = WORKFLOWS[name]["jobs"]
    return found


def steps(name: str) -> Iterator[dict[str, Any]]:
    for job in jobs(name).values():
        yield from job.get("steps", [])


@each_workflow
def test_foreign_actions_are_named_by_commit_with_their_version(name: str) -> None:
    used = re.findall(r"\buses: (.*)", TEXTS[name])
    assert used
    assert [use for use in used if not re.fullmatch(r"\./\S+|[\w-]+/[\w/-]+@[0-9a-f]{40} # v[\d.]+", use)] == []


@each_workflow
def test_jobs_may_only_read_the_repository_unless_they_publish(name: str) -> None:
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}
    for job_name, job in jobs(name).items():
        written = {scope for scope, access in job.get("permissions", {}).items() if access != "read"}
        assert written == WRITERS.get(job_name, set())


@each_workflow
def test_a_checkout_leaves_no_token_behind(name: str) -> None:
    checkouts = [step for step in steps(name) if step.get("uses", "").startswith("actions/checkout@")]
    assert [step for step in checkouts if step["with"]["persist-credentials"] is not False] == []


def test_publishing_waits_for_all_tests() -> None:
    found = jobs("release.yml")
    assert found["ci"]["uses"] == "./.github/workflows/ci.yml"
    for name in found.keys() & WRITERS.keys():
        job = found[name]
        needs = job["needs"]
        assert "ci" in (found[needs]["needs"] if isinstance(needs, str) else needs)
        signing = ("attest-build-provenance@", "gh-action-pypi-publish@")
        assert name == "pages" or any(action in step.get("uses", "") for step in job["steps"] for action in signing)


def test_nothing_is_published_with_a_password_for_pypi() -> None:
    """PyPI trusts the workflow with its environment instead."""
    (step,) = [step for step in steps("release.yml") if "pypi-publish@" in step.get("uses", "")]
    assert "with" not in step
    assert jobs("release.yml")["pypi"]["environment"] == "pypi"


def test_each_released_image_is_joined_from_those_of_its_processors() -> None:
    matrix = jobs("release.yml")["images"]["strategy"]["matrix"]
    left_out = [(each["target"], each["runner"]) for each in matrix["exclude"]]
    built = {(target, runner) for target in matrix["target"] for runner in matrix["runner"]} - set(left_out)
    runners = {"X64": "ubuntu-24.04", "ARM64": "ubuntu-24.04-arm"}
    joined = jobs("release.yml")["index"]["strategy"]["matrix"]["include"]
    assert {(image["target"], runners[name]) for image in joined for name in image["processors"].split()} == built


def test_the_packages_of_serving_images_are_audited_by_hash() -> None:
    (command,) = [step["run"] for step in steps("ci.yml") if step.get("run", "").startswith("pip-audit ")]
    assert "--require-hashes" in command.split()
    assert set(re.findall(r"--requirement (\S+)", command)) == {f"deploy/locks/{name}.txt" for name in ("cpu", "cuda")}


def test_a_released_image_states_the_licenses_of_what_it_holds() -> None:
    """The action that makes labels replaces that of the Dockerfile by the license of the repository."""
    (shipped,) = re.findall(r'^ARG LICENSES="(.*)"$', (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    job = jobs("release.yml")["images"]
    images = {image["target"]: image["licenses"] for image in job["strategy"]["matrix"]["include"]}
    assert images == {"cpu": shipped, "cuda": shipped, "train": "Apache-2.0"}
    (labels,) = [step["with"]["labels"] for step in job["steps"] if "metadata-action" in step.get("uses", "")]
    assert labels == "org.opencontainers.image.licenses=${{ matrix.licenses }}"
