"""`dragoman train` takes options from flags, environment and recipe, and refuses wrong ones in a single line."""

import re
from pathlib import Path

import pytest

from dragoman import command_line
from dragoman.model.config import TransformerConfig
from dragoman.model.run import RunFolder
from dragoman.model.training.train import TrainCommand
from tests.support.cases import cases
from tests.support.toy import toy_sentences, write_pairs
from tests.support.train_command import MAX_STEPS, refusal, start

CASES = cases(__file__)


def test_a_folder_with_something_else_is_refused(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("color: green\n", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"^dragoman train: out: .*config\.yaml: "):
        start(arguments, tmp_path)


def parse(arguments: list[str], monkeypatch: pytest.MonkeyPatch, *more: str) -> TrainCommand:
    """Returns the command of a command line without running it."""
    commands: list[TrainCommand] = []
    with monkeypatch.context() as patch:
        patch.setattr(TrainCommand, "cli_cmd", commands.append)
        command_line.run("train", [*arguments, "--out", "nowhere", *more])
    return commands[0]


def test_flags_win_over_environment_and_both_over_recipe(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_TRAIN_TRAINING__WARMUP_STEPS", "6")
    monkeypatch.setenv("DRAGOMAN_TRAIN_TRAINING__BATCH_TOKENS", "106")
    command = parse(arguments, monkeypatch, "--training.warmup-steps", "7", "--model.d-ff", "24")
    assert command.training.warmup_steps == 7
    assert command.training.batch_tokens == 106
    assert command.training.max_steps == MAX_STEPS
    assert isinstance(command.model, TransformerConfig)
    assert (command.model.d_model, command.model.d_ff) == (16, 24)
    assert command.training.gradient_clip == 1.0


def test_the_environment_names_data_and_recipe(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    _, data, _, recipe = arguments
    monkeypatch.setenv("DRAGOMAN_TRAIN_DATA", data)
    monkeypatch.setenv("DRAGOMAN_TRAIN_RECIPE", recipe)
    command = parse([], monkeypatch)
    assert isinstance(command.model, TransformerConfig)
    assert (command.data, command.model.d_model) == ((data,), 16)


def test_a_built_in_recipe_is_found_by_name(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    command = parse(arguments[:2], monkeypatch, "--recipe", "multi30k", "--training.max-steps", "500")
    assert (command.tokenizer.vocabulary_size, command.training.max_steps) == (4000, 500)


@pytest.mark.parametrize(("recipe", "key"), CASES["a wrong key of a recipe is named"])
def test_a_wrong_key_of_a_recipe_is_named(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], recipe: str, key: str
) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe, encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        start([*arguments[:2], "--recipe", str(path)], tmp_path / "run")
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"dragoman train: {key}: ")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("content", "problem"), CASES["an invalid recipe is reported"])
def test_an_invalid_recipe_is_reported(arguments: list[str], tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(SystemExit, match=rf"^dragoman train: recipe: .*recipe\.yaml: .*{problem}"):
        start([*arguments[:2], "--recipe", str(path)], tmp_path / "run")


@pytest.mark.parametrize(("option", "problem"), CASES["what a library refuses is named"])
def test_what_a_library_refuses_is_named(arguments: list[str], tmp_path: Path, option: str, problem: str) -> None:
    message = refusal(lambda: start([*arguments, "--hardware.accelerator=cpu"], tmp_path / "run", option))
    assert re.match(f"dragoman train: {problem}", message)
    assert not RunFolder(tmp_path / "run").tokenizer.exists()


@pytest.mark.parametrize("out", ["file", "file/run"])
def test_a_folder_that_cannot_be_made_is_refused(arguments: list[str], tmp_path: Path, out: str) -> None:
    (tmp_path / "file").touch()
    assert refusal(lambda: start(arguments, tmp_path / out)).startswith(f"dragoman train: out: {tmp_path / out}: ")


def test_a_missing_recipe_is_reported(arguments: list[str], tmp_path: Path) -> None:
    message = refusal(lambda: start([*arguments[:2], "--recipe", "no-such"], tmp_path / "run"))
    assert message.startswith("dragoman train: recipe: expected ")
    assert message.endswith(", got no-such")


@pytest.mark.parametrize(("options", "problem"), CASES["data that cannot be used are refused"], ids=str)
def test_data_that_cannot_be_used_are_refused(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], problem: str
) -> None:
    """Missing, too few to hold some out, of other languages for the validation, or all too long for the model."""
    monkeypatch.chdir(tmp_path)
    for name, count in (("one", 1), ("nine", 9)):
        write_pairs(tmp_path, name, toy_sentences()[:count])
    given = arguments[2:] if options[0] == "--data" else arguments
    assert refusal(lambda: start([*given, *options], tmp_path / "run")).startswith(f"dragoman train: {problem}")


def test_a_model_with_an_output_bias_is_not_trained(arguments: list[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(SystemExit, match=r"^dragoman train: model\.output-bias: expected False .*, got True$"):
        command_line.run("train", [*arguments, "--out", str(out), "--model.output-bias"])
    assert not out.exists()
