"""The proof of public models, against a registry and a hub on this machine with tiny random models."""

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE, CompletedProcess
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import yaml

from benchmarks.real_models import proof
from benchmarks.real_models.__main__ import main
from benchmarks.real_models.plan import MODELS, RealModel, read_models, read_sentences
from benchmarks.real_models.work import Work
from tests.support.cases import cases
from tests.support.commands import Capture
from tests.support.fake_hub import FakeHub, run_hub
from tests.support.firefox_registry import student_files
from tests.support.forked import ForkedPopen
from tests.support.hub_program import ARGOS, argos_package, variables

CASES = cases(__file__)
Run = Callable[..., tuple[object, list[str], str]]

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


def run_forked(command: list[str], *, input: str, timeout: float, **_: object) -> CompletedProcess[str]:  # noqa: A002
    """Does what `subprocess.run` does."""
    with ForkedPopen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, encoding="utf-8") as process:
        output, errors = process.communicate(input, timeout)
    return CompletedProcess(command, process.returncode, output, errors)


@pytest.fixture(name="run")
def _run(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Run:
    """Returns the exit status, the lines of the table, and standard error of a run with five sentences."""
    few = {language: texts[:5] for language, texts in read_sentences().items()}
    monkeypatch.setattr("benchmarks.real_models.__main__.read_sentences", lambda: few)
    forking = SimpleNamespace(**vars(subprocess) | {"run": run_forked})
    monkeypatch.setattr("benchmarks.real_models.work.subprocess", forking)
    for name, value in {**variables(hub), "DRAGOMAN_CACHE": ""}.items():
        monkeypatch.setenv(name, value)

    def run(*models: dict[str, object]) -> tuple[object, list[str], str]:
        (tmp_path / "models.yaml").write_text(yaml.safe_dump([*models]))
        status = None
        try:
            main(["--folder", str(tmp_path / "work"), "--models", str(tmp_path / "models.yaml")])
        except SystemExit as ended:
            status = ended.code
        output, errors = capsys.readouterr()
        return status, output.splitlines(), errors

    return run


@pytest.mark.usefixtures("forked_servers")
def test_a_model_of_each_kind_is_pulled_served_and_compared_and_the_next_run_downloads_nothing(
    hub: FakeHub, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, lines, errors = run(ARGOS_MODEL, STUDENT)
    assert status is None, errors
    heading, argos, student = lines[:3]
    assert re.split(r"  +", heading) == list(proof.COLUMNS)
    assert re.search(r"\(at least 0\) +ctranslate2, fp32: greedy 5 of 5, beam 4 5 of 5 +passed$", argos)
    assert re.search(r"\(no bound\) +bergamot(, 8 bits: \d of 5| is not installed) +passed$", student)
    assert f"argos:en-de: {hub.address}/argos/{ARGOS}" in lines
    hub.requests.clear()
    monkeypatch.setattr(proof, "_serve", lambda *_: ["x"] * 50)
    monkeypatch.setattr(proof, "_compare", Mock())
    row = prove(hub, Work(tmp_path / "work", time.monotonic() + 600, 1e9), monkeypatch, chrf=100)
    assert re.fullmatch(r"chrF is [\d.]+, expected at least 100", row.result)
    assert {path for _, path, _ in hub.requests} == {"firefox/db/models.json"}


def test_a_model_that_fails_is_a_row_with_the_reason(run: Run) -> None:
    status, lines, _ = run(STUDENT | {"name": "firefox:en-xx"})
    assert "has no model for these languages" in lines[1]
    assert status == "real-models: 1 of 1 failed"


def prove(hub: FakeHub, work: Work, monkeypatch: pytest.MonkeyPatch, **changed: object) -> proof.Row:
    for name, value in {**variables(hub), "DRAGOMAN_CACHE": str(work.folder / "cache")}.items():
        monkeypatch.setenv(name, value)
    return proof.prove(RealModel.model_validate(STUDENT | changed), read_sentences(), work)


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
