"""The proof of public models, against a registry and a hub on this machine with tiny random models."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from benchmarks.real_models import proof
from benchmarks.real_models.plan import MODELS, RealModel, read_models, read_sentences
from benchmarks.real_models.work import Work
from tests.support.cases import cases
from tests.support.fake_hub import FakeHub, run_hub
from tests.support.firefox_registry import student_files
from tests.support.hub_program import ARGOS, argos_package, variables
from tests.support.paths import ROOT

CASES = cases(__file__)

ARGOS_MODEL: dict[str, object] = CASES["an argos model"]
STUDENT: dict[str, object] = CASES["a student"]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeHub]:
    """A hub with a package of Argos and a model of Firefox with two vocabularies."""
    folder = tmp_path_factory.mktemp("hub")
    with run_hub() as hub:
        hub.packages[ARGOS] = argos_package(folder / "argos").read_bytes()
        hub.registry.add("en-ja", student_files(folder, separate=True))
        yield hub


def run(hub: FakeHub, folder: Path, *models: dict[str, object]) -> tuple[int, list[str], str]:
    """Returns the exit status, the lines of the table, and standard error."""
    (folder / "models.yaml").write_text(yaml.safe_dump([*models]))
    command = [sys.executable, "-m", "benchmarks.real_models", "--folder", str(folder / "work")]
    done = subprocess.run(
        [*command, "--models", str(folder / "models.yaml")],
        cwd=ROOT,
        env={**os.environ, **variables(hub)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_a_model_of_each_kind_is_pulled_served_and_compared_and_the_next_run_downloads_nothing(
    hub: FakeHub, tmp_path: Path
) -> None:
    status, lines, errors = run(hub, tmp_path, ARGOS_MODEL, STUDENT)
    assert status == 0, errors
    heading, argos, student = lines[:3]
    assert re.split(r"  +", heading) == list(proof.COLUMNS)
    assert re.search(r"\(at least 0\) +ctranslate2, fp32: greedy 50 of 50, beam 4 50 of 50 +passed$", argos)
    assert re.search(r"\(no bound\) +bergamot(, 8 bits: \d+ of 50| is not installed) +passed$", student)
    assert f"argos:en-de: {hub.address}/argos/{ARGOS}" in lines
    hub.requests.clear()
    status, lines, errors = run(hub, tmp_path, STUDENT | {"chrf": 100}, STUDENT | {"name": "firefox:en-xx"})
    assert re.search(r"chrF is [\d.]+, expected at least 100$", lines[1])
    assert "has no model for these languages" in lines[2]
    assert status == 1
    assert errors.splitlines()[-1] == "real-models: 2 of 2 failed"
    assert {path for _, path, _ in hub.requests} == {"firefox/db/models.json"}


def prove(hub: FakeHub, work: Work, monkeypatch: pytest.MonkeyPatch) -> proof.Row:
    for name, value in {**variables(hub), "DRAGOMAN_CACHE": str(work.folder / "cache")}.items():
        monkeypatch.setenv(name, value)
    return proof.prove(RealModel.model_validate(STUDENT), read_sentences(), work)


def test_a_model_beyond_the_limit_of_bytes_is_not_downloaded(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.requests.clear()
    row = prove(hub, Work(tmp_path, float("inf"), 1000), monkeypatch)
    assert re.fullmatch(r"the files have [\d.]+ MB, and 0\.0 MB of the limit are left", row.result)
    assert {path for _, path, _ in hub.requests} == {"firefox/db/models.json"}


def test_a_model_without_time_is_a_row_that_says_how_to_continue(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert prove(hub, Work(tmp_path, 0.0, 1e9), monkeypatch).result == "the time is over: the same command continues"


def test_sentences_and_models_are_complete() -> None:
    """Every model has references, every kind has a name of its own, and large models are not in the usual run."""
    sentences, models = read_sentences(), read_models(MODELS)
    assert all(len(set(column)) == 50 and all(column) for column in sentences.values())
    assert {model.target for model in models} <= sentences.keys()
    assert len({model.kind for model in models}) == len(models)
    assert {model.name for model in models if model.large} == {
        "facebook/m2m100_418M",
        "facebook/nllb-200-distilled-600M",
    }
