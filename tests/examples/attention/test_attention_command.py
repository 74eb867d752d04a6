"""`dragoman attention` writes every file that its document shows, and reports errors before it measures."""

import json
from pathlib import Path

import pytest
import torch

import dragoman
from model.config import Direction, RunConfig
from model.run import RunFolder
from model.tokenizer.tokenizer import Tokenizer
from tests.support.toy import random_model

SOURCES = ["alpha beta gamma.", "one two three four.", "house garden.", "river " * 30]
TARGETS = ["one two.", "alpha beta.", "garden.", "river."]
DOCUMENT = "A\n<!-- layers --><!-- /layers -->\nB\n<!-- maps --><!-- /maps -->\nC\n<!-- table --><!-- /table -->\nD\n"
# The smallest options.
QUICK = ["--width", "8", "--longest", "16", "--sentence", "1", "--sentence", "3", "--timed-sentences", "3"]


def write_run(folder: Path, tokenizer: Tokenizer, seed: int) -> Path:
    """Writes a run of a random model of two decoder layers with two heads."""
    limits = {"max_source_tokens": 30, "max_target_tokens": 20}
    model = random_model(seed, tokenizer.vocabulary_size, decoder_layers=2, **limits)
    run = RunFolder(folder)
    run.best_checkpoint.parent.mkdir(parents=True)
    config = RunConfig(directions=(Direction(source="en", target="de"),), model=model.config)
    run.config.write_text(config.to_yaml(), encoding="utf-8")
    run.tokenizer.write_bytes(tokenizer.model)
    state = {f"model.{name}": value for name, value in model.state_dict().items()}
    torch.save({"state_dict": state, "global_step": 7}, run.best_checkpoint)
    return folder


@pytest.fixture(scope="module")
def workshop(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, data and scores."""
    folder = tmp_path_factory.mktemp("report")
    for seed, name in enumerate(("first", "second")):
        write_run(folder / name, tokenizer, seed)
    for language, lines in (("en", SOURCES), ("de", TARGETS)):
        (folder / f"pairs.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    scores = {"source_language": "en", "target_language": "de", "system": {"bleu": 36.4, "chrf": 61.2}}
    (folder / "scores").mkdir()
    for name in ("first", "second"):
        (folder / "scores" / f"{name}.json").write_text(json.dumps({"directions": [scores]}), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def report(workshop: Path) -> Path:
    """The folder of a report on both runs, next to its document."""
    (workshop / "document.md").write_text(DOCUMENT, encoding="utf-8")
    out, document = workshop / "pictures" / "attention", workshop / "document.md"
    options = ["--out", str(out), "--document", str(document), "--scores", str(workshop / "scores"), *QUICK]
    dragoman.run("attention", [str(workshop / "first"), str(workshop / "second"), *data(workshop), *options])
    return out


def data(workshop: Path) -> list[str]:
    return ["--data", f"files:{workshop / 'pairs.en'},{workshop / 'pairs.de'}"]


def test_every_picture_and_table_is_written(report: Path) -> None:
    tables = {"layers.md", "maps.md", "table.md", "measurements.json"}
    pictures = {"layers.svg", "maps-1.svg", "maps-3.svg", "heads-first.svg", "heads-second.svg", "runs.svg"}
    assert {path.name for path in report.iterdir()} == tables | pictures


def test_the_picture_of_heads_shows_every_head(report: Path) -> None:
    assert (report / "heads-first.svg").read_text(encoding="utf-8").count("<image") == 4


def test_the_document_shows_every_picture(report: Path) -> None:
    document = (report.parent.parent / "document.md").read_text(encoding="utf-8")
    pictures = [path.name for path in report.glob("*.svg")]
    assert [name for name in pictures if f"![](pictures/attention/{name})" not in document] == []


def test_the_rest_of_the_document_is_kept(report: Path) -> None:
    document = (report.parent.parent / "document.md").read_text(encoding="utf-8")
    assert [line for line in document.splitlines() if line in "ABCD" and line] == list("ABCD")


def test_the_table_holds_the_scores_of_the_runs(report: Path) -> None:
    rows = [line for line in (report / "table.md").read_text(encoding="utf-8").splitlines() if "Transformer" in line]
    assert [row.split(" | ")[0] for row in rows] == ["| first", "| second"]
    assert all(" | 36.4 | 61.2 | " in row for row in rows)


def test_figures_carry_command_machine_versions_and_date(report: Path) -> None:
    provenance = json.loads((report / "measurements.json").read_text(encoding="utf-8"))["provenance"]
    assert provenance["command"].startswith("dragoman attention ")
    assert set(QUICK) <= set(provenance["command"].split())
    for name in ("layers.md", "maps.md", "table.md"):
        text = (report / name).read_text(encoding="utf-8")
        assert [value for value in provenance.values() if value not in text] == []


def test_the_figures_are_complete(report: Path) -> None:
    figures = json.loads((report / "measurements.json").read_text(encoding="utf-8"))
    assert {(cost["kind"], cost["length"]) for cost in figures["layers"]} >= {("recurrent", 8), ("self-attention", 16)}
    assert [(run["name"], run["scores"]["bleu"], run["batched_tokens_per_second"] > 0) for run in figures["table"]] == [
        ("first", 36.4, True),
        ("second", 36.4, True),
    ]
    assert [pair["number"] for pair in figures["maps"]] == [1, 3]


def test_without_a_run_only_the_layers_are_measured(tmp_path: Path) -> None:
    dragoman.run("attention", ["--out", str(tmp_path), "--width", "8", "--longest", "16"])
    assert {path.name for path in tmp_path.iterdir()} == {"layers.md", "layers.svg", "measurements.json"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sentence", "5"], "sentence: .*5"),
        (["--sentence", "4"], "sentence: .*30"),
        (["--scores", "nowhere"], "nowhere/first.json: "),
        (["--document", "nowhere.md"], "document: .*nowhere.md"),
        (["--data", "tsv:nowhere"], "nowhere"),
    ],
)
def test_errors_are_reported_before_the_measurement(
    workshop: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    arguments = [str(workshop / "first"), "--out", str(tmp_path / "out"), *data(workshop), *options]
    with pytest.raises(SystemExit, match=f"^dragoman attention: .*{message}"):
        dragoman.run("attention", arguments)
    assert not (tmp_path / "out").exists()


def test_a_document_without_the_section_is_reported(workshop: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.md").write_text("no place", encoding="utf-8")
    options = ["--out", str(tmp_path / "out"), "--document", str(tmp_path / "empty.md")]
    with pytest.raises(SystemExit, match="<!-- layers -->"):
        dragoman.run("attention", [str(workshop / "first"), *data(workshop), *options])


def test_runs_must_have_different_names(workshop: Path, tmp_path: Path) -> None:
    runs = [str(workshop / "first"), str(workshop / "second" / ".." / "first")]
    with pytest.raises(SystemExit, match="runs: first, first: "):
        dragoman.run("attention", [*runs, "--out", str(tmp_path), *data(workshop)])


def test_a_run_of_another_direction_is_rejected(workshop: Path, tmp_path: Path) -> None:
    reverse = f"files:{workshop / 'pairs.de'},{workshop / 'pairs.en'}"
    with pytest.raises(SystemExit, match=r"first: .*de-en"):
        dragoman.run("attention", [str(workshop / "first"), "--out", str(tmp_path), "--data", reverse])
