"""`dragoman bench graphs` measures every system of a trained and a random model, and validates its input first."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import dragoman
from loadtest.report_files import ReportFiles
from model.config import RunConfig
from model.run import RunFolder
from model.tokenizer.tokenizer import Tokenizer
from tests.support.paths import ROOT
from tests.support.recurrent_models import random_recurrent
from tests.support.toy import TOY_CONFIG, toy_test_sentences, write_pairs

SHAPE = ["--random.d-model=64", "--random.d-ff=64", "--random.heads=4", "--vocabulary-size=100"]
SHAPE += ["--random.encoder-layers=1", "--random.decoder-layers=1"]
QUICK = ["--rows=1,2", "--rounds=2", "--turn-seconds=0", "--source-tokens=8", "--target-tokens=6"]
SENTENCES = 10
# Each variant and each precision once, and their baselines.
MEASURED = ["portable-fp32", "ctranslate2-float32", "cpu-int8", "ctranslate2-int8"]
# Four exports and sixteen processes: minutes on a busy machine.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module", name="report")
def _report(toy_run: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report on the toy model and a random one; its document lies in it."""
    out = tmp_path_factory.mktemp("report")
    data = write_pairs(out, "few", toy_test_sentences()[:SENTENCES])
    document = out / "document.md"
    document.write_text("<!-- graphs --><!-- /graphs -->", encoding="utf-8")
    options = ["--out", str(out), "--document", str(document), "--run", str(toy_run.path), "--quality", data]
    dragoman.run("bench graphs", [*options, *SHAPE, *QUICK, f"--systems={','.join(MEASURED)}"])
    return out


@pytest.fixture(name="figures")
def _figures(report: Path) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads((report / "graphs.json").read_text(encoding="utf-8"))
    return figures


def refusal(*arguments: str) -> str:
    """Returns the error message of a call."""
    with pytest.raises(SystemExit) as ended:
        dragoman.run("bench graphs", [*SHAPE, *QUICK, *arguments])
    return str(ended.value.code)


def test_every_system_of_both_models_is_measured_in_every_round(figures: dict[str, Any]) -> None:
    assert [model["name"] for model in figures["models"]] == ["run", "random"]
    for model in figures["models"]:
        assert [system["name"] for system in model["systems"]] == MEASURED
        rounds = [each for system in model["systems"] for each in system["rounds"]]
        assert len(rounds) == 2 * len(MEASURED)
        assert [each for each in rounds if list(each["tokens_per_second"]) != ["1", "2"]] == []


def test_the_trained_model_alone_has_quality_in_every_system(figures: dict[str, Any]) -> None:
    trained, random = ([system["bleu"] for system in model["systems"]] for model in figures["models"])
    assert min(bleu["system"]["score"] for bleu in trained) > 90
    assert random == [None] * len(MEASURED)


def test_systems_in_fp32_translate_alike(figures: dict[str, Any]) -> None:
    systems = figures["models"][0]["systems"]
    assert len({system["bleu"]["system"]["score"] for system in systems if "int8" not in system["name"]}) == 1


def test_8_bit_integers_are_smaller(figures: dict[str, Any]) -> None:
    sizes = {system["name"]: system["size_bytes"] for system in figures["models"][0]["systems"]}
    assert sizes["cpu-int8"] < sizes["portable-fp32"]


def test_the_document_gets_the_tables_and_their_provenance(report: Path, figures: dict[str, Any]) -> None:
    text = (report / "document.md").read_text(encoding="utf-8")
    assert text.startswith("<!-- graphs -->\n\n**run**: ")
    assert (report / "graphs.md").read_text(encoding="utf-8").strip() in text
    assert [value for value in figures["provenance"].values() if value not in text] == []
    assert text.count("| cpu-int8 |") == 2


def test_the_documentation_has_a_section_for_the_tables(tmp_path: Path) -> None:
    ReportFiles("graphs", tmp_path, ROOT / "docs" / "measurements" / "export.md").prepare()


def test_the_library_of_an_unused_baseline_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    dragoman.run("bench graphs", [*SHAPE, *QUICK, "--systems", "cpu-fp32", "--out", str(tmp_path)])
    assert "ctranslate2" not in (tmp_path / "graphs.md").read_text(encoding="utf-8").partition("Measured by")[0]


def test_a_missing_library_is_reported_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    problem = refusal("--out", str(tmp_path))
    assert problem.startswith("dragoman bench graphs: ctranslate2 is not installed, ")
    assert "the extra peers" in problem


def test_an_unknown_system_is_rejected_with_the_known_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal("--out", str(tmp_path), "--systems", "tensorrt") == "2"
    error = capsys.readouterr().err
    assert "--systems.0: Input should be 'cpu-fp32', " in error
    assert "(given: 'tensorrt')" in error


def test_an_empty_run_folder_is_rejected(tmp_path: Path) -> None:
    problem = refusal("--out", str(tmp_path / "out"), "--run", str(tmp_path))
    assert problem.startswith(f"dragoman bench graphs: {tmp_path}: ")


def test_a_recurrent_run_is_rejected(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = random_recurrent(tokenizer.vocabulary_size)
    run = RunFolder(tmp_path / "recurrent")
    run.best_checkpoint.parent.mkdir(parents=True)
    config = RunConfig(directions=TOY_CONFIG.directions, model=model.limits)
    run.config.write_text(config.to_yaml(), encoding="utf-8")
    run.tokenizer.write_bytes(tokenizer.model)
    run.samples.touch()
    state = {f"model.{name}": value for name, value in model.state_dict().items()}
    torch.save({"state_dict": state, "global_step": 0}, run.best_checkpoint)
    problem = refusal("--out", str(tmp_path), "--run", str(run.path))
    assert ": Recurrent: expected a Transformer" in problem


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--source-tokens=65"], "source-tokens: 65: expected at most 64"),
        (["--target-tokens=65"], "target-tokens: 65: expected at most 64"),
        (["--quality", "multi30k:en-de"], "quality: "),
        (["--document", "nowhere.md"], "document: nowhere.md: "),
    ],
)
def test_invalid_input_is_reported_before_measuring(tmp_path: Path, options: list[str], problem: str) -> None:
    assert refusal("--out", str(tmp_path), *options).startswith(f"dragoman bench graphs: {problem}")


def test_data_of_another_direction_is_rejected(toy_run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "pairs.de-en.tsv").write_text("wort\tword\n", encoding="utf-8")
    data = f"tsv:{tmp_path / 'pairs.de-en.tsv'}"
    problem = refusal("--out", str(tmp_path), "--run", str(toy_run.path), "--quality", data)
    assert problem.startswith("dragoman bench graphs: data: de-en: ")
