"""A plan trains its runs with every seed, goes on where it was, and compares validations."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from torch.utils.tensorboard import SummaryWriter

from dragoman import command_line
from dragoman.model.config import RunConfig
from dragoman.model.run import RunFolder
from dragoman.model.training.plan import RunPlan, folder_of, format_results
from tests.support.cases import cases
from tests.support.commands import refusal
from tests.support.toy import toy_sentences, write_pairs

CASES = cases(__file__)

RECIPE = {
    "model": {"d_model": 16, "d_ff": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1},
    "tokenizer": {"vocabulary_size": 60},
    "training": {"max_steps": 2, "batch_tokens": 100, "validation_every_steps": 1, "warmup_steps": 5},
}


def write_plan(folder: Path, **changes: object) -> Path:
    recipe, plan = folder / "recipe.yaml", folder / "plan.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    content = {
        "data": [write_pairs(folder, "train", toy_sentences()[:100])],
        "recipe": str(recipe),
        "runs": {"baseline": {}, "longer": {"training": {"max_steps": 3}}},
        **changes,
    }
    plan.write_text(yaml.safe_dump(content), encoding="utf-8")
    return plan


def write_validations(run: RunFolder, losses: dict[int, float]) -> None:
    with SummaryWriter(str(run.logs)) as writer:
        for step, loss in losses.items():
            writer.add_scalar("validation_loss", loss, step)


@pytest.fixture
def _commands_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs each command of a plan in this process: a new one would import the training library anew, for seconds."""

    def run(command: list[str], *, check: bool) -> None:
        assert command[:3] == [sys.executable, "-m", "dragoman"]
        assert not check
        with suppress(SystemExit):
            command_line.run(command[3], command[4:])

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.usefixtures("_commands_here")
def test_every_run_of_a_plan_is_trained_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = [str(write_plan(tmp_path)), "--out", str(tmp_path / "runs")]
    command_line.run("plan", arguments)
    output = capfd.readouterr().out
    assert [line.split()[:5] for line in output.splitlines()[-3:]] == [
        ["run", "selection", "seeds", "complete", "steps"],
        ["baseline", "loss", "1/1", "1", "2"],
        ["longer", "loss", "1/1", "1", "3"],
    ]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")}
    command_line.run("plan", arguments)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")} == before
    assert capfd.readouterr().out.splitlines() == output.splitlines()[-3:]
    data = write_pairs(tmp_path, "other", toy_sentences()[:90])
    edited = write_plan(tmp_path, runs={"baseline": {}, "longer": {"data": [data], "training": {"max_steps": 3}}})
    assert refusal("plan", str(edited), *arguments[1:]) == (
        f"dragoman plan: {tmp_path}/runs/longer/seed-1: data, validation: expected the same content as in this run, got"
        " other content; give the changed run another name"
    )
    inputs = tmp_path / "runs" / "longer" / "seed-1" / "inputs.yaml"
    inputs.write_bytes(b"data")
    assert refusal("plan", *arguments).startswith(f"dragoman plan: {inputs}: damaged")


@pytest.mark.parametrize("options", [[], ["--table"]], ids=str)
@pytest.mark.parametrize("finished", [True, False])
def test_a_plan_with_other_options_than_its_runs_is_refused(tmp_path: Path, options: list[str], finished: bool) -> None:
    run = folder_of(tmp_path / "runs", "longer", 1)
    run.path.mkdir(parents=True)
    training, directions = {**RECIPE["training"], "max_steps": 3}, [{"source": "en", "target": "de"}]
    config = RunConfig.model_validate({"directions": directions, **RECIPE, "training": training})
    run.config.write_text(config.to_yaml(), encoding="utf-8")
    if finished:
        run.done.touch()
    edited = write_plan(tmp_path, runs={"baseline": {}, "longer": {"training": {"max_steps": 4}}})
    assert refusal("plan", str(edited), "--out", str(tmp_path / "runs"), *options) == (
        f"dragoman plan: {run.path}: training.max-steps: expected 3 as in this run, got 4;"
        " give the changed run another name"
    )


def test_the_table_has_the_mean_of_the_best_validations(tmp_path: Path) -> None:
    plan = RunPlan.model_validate(yaml.safe_load(write_plan(tmp_path, seeds=[1, 2, 3]).read_text(encoding="utf-8")))
    for seed, best in ((1, 2.0), (2, 3.0)):
        run = folder_of(tmp_path, "baseline", seed)
        write_validations(run, {9: 9.0, 19: best, 29: 5.0})
        run.done.touch()
    assert [line.split() for line in format_results(plan, tmp_path).splitlines()[1:]] == [
        ["baseline", "loss", "2/3", "2", "30", "2.50", "0.71"],
        ["longer", "loss", "0/3", "0", "0"],
    ]


@pytest.mark.usefixtures("_commands_here")
def test_a_run_that_fails_is_named_and_the_others_are_trained(tmp_path: Path) -> None:
    runs = {"broken": {"data": [f"tsv:{tmp_path}/none.en-de.tsv"]}, "baseline": {}}
    message = refusal("plan", str(write_plan(tmp_path, runs=runs)), "--out", str(tmp_path / "runs"))
    assert message.startswith(f"dragoman plan: failed: {tmp_path}/runs/broken/seed-1; ")
    assert folder_of(tmp_path / "runs", "baseline", 1).done.exists()


@pytest.mark.parametrize(("changes", "problem"), CASES["a mistake in a run is found before training"])
def test_a_mistake_in_a_run_is_found_before_training(tmp_path: Path, changes: dict[str, object], problem: str) -> None:
    assert problem in refusal("plan", str(write_plan(tmp_path, **changes)), "--out", str(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()


def test_a_plan_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    assert "none.yaml" in refusal("plan", str(tmp_path / "none.yaml"), "--out", str(tmp_path / "runs"))
