"""`dragoman bench offline` measures every system of a trained and a random model, and validates its input first."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import dragoman
from loadtest.report_files import ReportFiles
from model.run import RunFolder
from tests.support.optimum import PYTHON, needs_optimum
from tests.support.paths import ROOT

SHAPE = ["--random.d-model=64", "--random.d-ff=64", "--random.heads=4", "--vocabulary-size=100"]
SHAPE += ["--random.encoder-layers=1", "--random.decoder-layers=1"]
QUICK = ["--rounds=1", "--precisions=fp32,int8-static", "--alone=2", "--alone-threads=1", "--engines=2"]
TRIALS = ["--batches=2:examples,40:tokens", "--slots=8,16"]
ONCE = ["--rounds=1", "--alone=1", "--alone-threads=1", "--engines=1"]
NO_TRIALS = ["--batches=2:examples", "--slots=8"]
SENTENCES = 6
MAKERS = ["dragoman", "ctranslate2"] * 2
# Importing torch and transformers takes long; test_translators.py tests their translators.
BASELINES = "--baselines=ctranslate2"
# Four exports and a dozen processes: minutes on a busy machine.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module", name="report")
def _report(toy_run: RunFolder, toy_data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report on the toy model and a random one; its document lies in it."""
    out = tmp_path_factory.mktemp("report")
    document = out / "document.md"
    document.write_text("<!-- offline --><!-- /offline -->", encoding="utf-8")
    options = ["--out", str(out), "--document", str(document), "--run", str(toy_run.path), "--data", toy_data]
    dragoman.run("bench offline", [*options, BASELINES, *SHAPE, *QUICK, *TRIALS, f"--sentences={SENTENCES}"])
    return out


@pytest.fixture(name="models")
def _models(report: Path) -> list[dict[str, Any]]:
    figures = json.loads((report / "offline.json").read_text(encoding="utf-8"))
    models: list[dict[str, Any]] = figures["models"]
    return models


def refusal(*arguments: str) -> str:
    """Returns the error message of a call."""
    with pytest.raises(SystemExit) as ended:
        dragoman.run("bench offline", [*SHAPE, *QUICK, *arguments])
    return str(ended.value.code)


def test_every_system_of_both_models_does_every_task_in_every_round(models: list[dict[str, Any]]) -> None:
    assert [(model["name"], model["sentences"], model["alone"]) for model in models] == [
        ("run", SENTENCES, 2),
        ("random", SENTENCES, 2),
    ]
    for model in models:
        assert [system["maker"] for system in model["systems"]] == MAKERS
        for system in model["systems"]:
            rounds = [*system["together"], *system["alone"]["1"]]
            assert [list(each["seconds"]) for each in rounds] == [["greedy", "beam 4"]] * 2


def test_a_random_model_writes_exactly_the_tokens_of_the_references(models: list[dict[str, Any]]) -> None:
    """In every system."""
    made = {
        round(each["tokens_per_second"][search] * each["seconds"][search])
        for system in models[1]["systems"]
        for each in system["together"]
        for search in ("greedy", "beam 4")
    }
    assert len(made) == 1
    assert made.pop() > 3 * SENTENCES


def test_systems_in_floats_translate_like_ctranslate2(models: list[dict[str, Any]]) -> None:
    trained, random = ([system["differences"] for system in model["systems"]] for model in models)
    nowhere: dict[str, list[object]] = {"greedy": [], "beam 4": []}
    assert trained == [nowhere, None, None, None]
    assert random == [None] * len(MAKERS)


def test_baselines_try_batches_and_engines_try_rows(models: list[dict[str, Any]]) -> None:
    for model in models:
        for system in model["systems"]:
            tried = {"8:rows", "16:rows"} if system["maker"] == "dragoman" else {"2:examples", "40:tokens"}
            found = {search: set(trials) for search, trials in system["trials"].items()}
            assert found == {"greedy": tried, "beam 4": tried}


def test_each_size_is_tried_in_several_passes(models: list[dict[str, Any]]) -> None:
    systems = [system for model in models for system in model["systems"]]
    passes = [speeds for system in systems for speeds in system["trials"]["beam 4"].values()]
    assert {len(set(speeds)) for speeds in passes} == {2}


def test_the_document_gets_the_tables_and_their_provenance(report: Path) -> None:
    text = (report / "document.md").read_text(encoding="utf-8")
    assert text.startswith("<!-- offline -->\n\n**run**: ")
    assert (report / "offline.md").read_text(encoding="utf-8").strip() in text
    assert text.count("| fp32 | dragoman | ctranslate2 |") == 2
    assert text.count("| int8-static | dragoman | ctranslate2 |") == 2
    assert text.count("| greedy, same as ctranslate2 | 100.00% |") == 1


def test_the_documentation_has_a_section_for_the_tables(tmp_path: Path) -> None:
    ReportFiles("offline", tmp_path, ROOT / "docs" / "measurements" / "benchmarks.md").prepare()


def test_libraries_of_unused_baselines_and_torch_in_the_engines_are_not_needed(
    toy_data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch alone would make their processes twice as large."""
    for library in ("ctranslate2", "transformers"):
        monkeypatch.setitem(sys.modules, library, None)
    options = ["--baselines=pytorch", "--precisions=fp32", *ONCE]
    where = ["--data", toy_data, "--sentences=2", "--out", str(tmp_path)]
    dragoman.run("bench offline", [*SHAPE, *options, *NO_TRIALS, *where])
    assert "| fp32 | dragoman | pytorch |" in (tmp_path / "offline.md").read_text(encoding="utf-8")
    (model,) = json.loads((tmp_path / "offline.json").read_text(encoding="utf-8"))["models"]
    peaks = {system["maker"]: system["together"][0]["peak_bytes"] for system in model["systems"]}
    assert peaks["dragoman"] < 0.6 * peaks["pytorch"]


@pytest.mark.parametrize("library", ["ctranslate2", "transformers"])
def test_a_missing_library_is_reported_with_its_extra(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    problem = refusal("--out", str(tmp_path))
    assert problem.startswith(f"dragoman bench offline: {library} is not installed, ")
    assert "the extra peers" in problem


def test_an_unknown_baseline_is_rejected_with_the_known_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal("--out", str(tmp_path), "--baselines", "marian") == "2"
    error = capsys.readouterr().err
    assert "--baselines.0: Input should be 'ctranslate2', " in error
    assert "(given: 'marian')" in error


def test_optimum_without_its_environment_is_rejected_before_measuring(tmp_path: Path) -> None:
    python = tmp_path / "python"
    problem = refusal("--out", str(tmp_path), "--baselines", "ctranslate2,optimum", "--optimum-python", str(python))
    assert problem.startswith(f"dragoman bench offline: optimum: {python}: No such file or directory; expected ")


@needs_optimum
def test_optimum_is_measured_in_its_environment(toy_data: str, tmp_path: Path) -> None:
    options = ["--baselines=optimum", "--precisions=fp32", *ONCE]
    where = ["--data", toy_data, "--sentences=2", "--out", str(tmp_path), "--optimum-python", str(PYTHON)]
    dragoman.run("bench offline", [*SHAPE, *options, *NO_TRIALS, *where])
    table = (tmp_path / "offline.md").read_text(encoding="utf-8")
    assert "| fp32 | dragoman | optimum |" in table
    assert "; optimum: optimum-onnx 0.1.0, transformers 4." in table


def test_a_model_that_transformers_does_not_support_is_rejected(toy_data: str, tmp_path: Path) -> None:
    problem = refusal("--out", str(tmp_path), "--data", toy_data, "--random.norm=rms")
    assert problem.startswith("dragoman bench offline: random: norm: rms: expected layer")
    assert "--baselines" in problem


@pytest.mark.parametrize("batch", ["64:", "0:examples", "64:rows", "x64:tokens"])
def test_an_invalid_batch_is_rejected(batch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal("--out", str(tmp_path), "--batches", batch) == "2"
    assert "--batches.0: String should match pattern" in capsys.readouterr().err


def test_a_sentence_too_long_for_the_random_model_is_rejected(toy_data: str, tmp_path: Path) -> None:
    problem = refusal("--out", str(tmp_path), "--data", toy_data, "--random.max-target-tokens=3")
    assert problem.startswith("dragoman bench offline: sentence ")
    assert problem.endswith(" target tokens, expected at most 3: see --random.max-target-tokens")


def test_data_of_another_direction_is_rejected(toy_run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "pairs.de-en.tsv").write_text("wort\tword\n", encoding="utf-8")
    data = f"tsv:{tmp_path / 'pairs.de-en.tsv'}"
    problem = refusal("--out", str(tmp_path), "--run", str(toy_run.path), "--data", data)
    assert problem.startswith("dragoman bench offline: data: de-en: ")
