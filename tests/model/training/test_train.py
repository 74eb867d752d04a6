"""`dragoman train`: an interrupted run ends like an uninterrupted one."""

import errno
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from dragoman import command_line
from dragoman.model.config import RunConfig
from dragoman.model.run import RunFolder
from dragoman.model.samples import SAMPLES
from dragoman.model.search import generate_greedy
from dragoman.model.tokenizer.tokenizer import EOS_ID
from dragoman.model.training.curves import read_measures
from dragoman.model.training.module import TranslationModule
from tests.support.paths import ROOT
from tests.support.toy import fail_once, toy_sentences, toy_test_sentences, translate_toy, write_pairs
from tests.support.train_command import MAX_STEPS, RECIPE, refusal, start

WAIT_SECONDS = 240.0

# All options with a state that resuming must restore: sampled subwords, averages, two passes, accumulated gradients, a
# measure that translates, and patience.
FULL = ["--training.subword-sampling=0.3", "--training.averaging=exponential", "--training.averaging-decay=0.8"]
FULL += ["--training.r-drop=1", "--training.accumulated-batches=2", "--training.selection=bleu"]
FULL += ["--training.patience=9", "--training.schedule=cosine", "--training.learning-rate=0.01"]
FULL += ["--model.dropout=0.2", "--training.dropout-warmup-steps=6"]


@pytest.fixture(scope="module")
def unbroken(arguments: list[str], tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return start(arguments, tmp_path_factory.mktemp("unbroken") / "run")


@pytest.fixture
def resettable_signals() -> Iterator[None]:
    """Restores the signal handlers, because Lightning disables Ctrl-C after an interrupt."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)


def parameters(checkpoint: Path) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(checkpoint, weights_only=True)["state_dict"]
    return state


def validation_losses(run: RunFolder) -> list[float]:
    return list(read_measures(run.logs)["validation_loss"].values())


def assert_same_end(ours: RunFolder, theirs: RunFolder) -> None:
    """Asserts that two runs have the same final parameters, bit for bit."""
    for one, other in ((ours.last_checkpoint, theirs.last_checkpoint), (ours.best_checkpoint, theirs.best_checkpoint)):
        left, right = parameters(one), parameters(other)
        assert left.keys() == right.keys()
        assert [name for name in left if not torch.equal(left[name], right[name])] == []


def test_a_run_leaves_all_that_an_export_needs(unbroken: RunFolder) -> None:
    trained = unbroken.load()
    assert trained.config == RunConfig.model_validate({"directions": [{"source": "en", "target": "de"}], **RECIPE})
    assert trained.steps < MAX_STEPS
    assert not trained.model.training
    assert len(unbroken.samples.read_text(encoding="utf-8").splitlines()) == 30
    assert torch.load(unbroken.last_checkpoint, weights_only=True)["global_step"] == MAX_STEPS


def test_a_model_translates_sentences_that_it_has_not_seen(toy_run: RunFolder) -> None:
    trained = toy_run.load()
    sentences = toy_test_sentences()
    sources = [[*ids, EOS_ID] for ids in trained.tokenizer.encode_lines(sentences)]
    found = [trained.tokenizer.decode(answer.target_ids) for answer in generate_greedy(trained.model, sources)]
    assert sum(map(str.__eq__, found, map(translate_toy, sentences))) >= 0.9 * len(found)


def test_the_last_tenth_is_held_out(unbroken: RunFolder) -> None:
    lines = unbroken.samples.read_text(encoding="utf-8").splitlines()
    assert lines == [f"en\tde\t{sentence}" for sentence in toy_sentences()[270:300]]


def test_a_killed_run_ends_like_an_unbroken_one(arguments: list[str], tmp_path: Path) -> None:
    longer = [*arguments, "--training.max-steps", "60"]
    killed = RunFolder(tmp_path / "killed")
    command = [sys.executable, "-m", "dragoman", "train", *longer, "--out", str(killed.path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline_seconds = time.monotonic() + WAIT_SECONDS
        while not killed.last_checkpoint.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline_seconds
            time.sleep(0.001)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert not killed.done.exists()
    assert_same_end(start(longer, killed.path), start(longer, tmp_path / "unbroken"))


def test_a_run_with_every_option_ends_like_an_unbroken_one(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step takes two batches, so call 9 is the first one after a checkpoint."""
    with monkeypatch.context() as patch:
        fail_once(patch, "training_step", 9)
        with pytest.raises(RuntimeError, match="out of memory"):
            start(arguments, tmp_path / "broken", *FULL)
    unbroken = start(arguments, tmp_path / "unbroken", *FULL)
    assert_same_end(start(arguments, tmp_path / "broken", *FULL), unbroken)


def test_seed_sampling_and_averages_change_the_model(arguments: list[str], unbroken: RunFolder, tmp_path: Path) -> None:
    for number, option in enumerate(
        ("seed=2", "subword-sampling=0.3", "averaging=last", "r-drop=1", "accumulated-batches=2")
    ):
        other = start(arguments, tmp_path / str(number), f"--training.{option}", "--model.dropout=0.1")
        ours, theirs = parameters(other.last_checkpoint), parameters(unbroken.last_checkpoint)
        assert not torch.equal(ours["model.embedding.weight"], theirs["model.embedding.weight"]), option


def test_two_processes_train_like_one_that_takes_two_batches_a_step(arguments: list[str], tmp_path: Path) -> None:
    """Each process takes every second batch, and their gradients are averaged."""
    gentle = ["--training.learning-rate=0.01", "--model.dropout=0"]
    together = RunFolder(tmp_path / "together")
    hardware = ["--hardware.accelerator=cpu", "--hardware.devices=2", "--hardware.strategy=ddp"]
    command = [sys.executable, "-m", "dragoman", "train", *arguments, *gentle, "--out", str(together.path), *hardware]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=WAIT_SECONDS)
    alone = start(arguments, tmp_path / "alone", *gentle, "--training.accumulated-batches=2")
    assert together.done.exists()
    assert validation_losses(together) == pytest.approx(validation_losses(alone), rel=1e-3)
    ours, theirs = parameters(together.last_checkpoint), parameters(alone.last_checkpoint)
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-3, atol=1e-4)


def test_training_stops_when_patience_ends_and_stays_stopped(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The learning rate is so high that every later validation is worse than the first."""
    options = ["--training.patience=2", "--training.validation-every-steps=2", "--training.max-steps=60"]
    with monkeypatch.context() as patch:
        patch.delattr("dragoman.model.training.train.plot_curves")
        with pytest.raises(NameError):
            start(arguments, tmp_path, *options, "--training.learning-rate=9")
    last = RunFolder(tmp_path).last_checkpoint
    assert torch.load(last, weights_only=True)["global_step"] < 60
    before = last.read_bytes()
    assert start(arguments, tmp_path, *options, "--training.learning-rate=9").done.exists()
    assert last.read_bytes() == before


def test_a_loss_that_is_not_finite_stops_the_run(arguments: list[str], tmp_path: Path) -> None:
    message = refusal(lambda: start(arguments, tmp_path / "run", "--training.learning-rate=1e30"))
    assert "the loss is nan at step" in message or "the loss is inf at step" in message
    assert "learning rate" in message
    assert not RunFolder(tmp_path / "run").done.exists()


def test_a_finished_run_has_its_curves_drawn(unbroken: RunFolder) -> None:
    assert "<!-- validation loss -->" in unbroken.curves.read_text(encoding="utf-8")


@pytest.mark.parametrize("moment", [("training_step", 1), *(("validation_step", call) for call in (1, 5))], ids=str)
def test_a_run_that_fails_anywhere_ends_like_an_unbroken_one(
    arguments: list[str], unbroken: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: tuple[str, int]
) -> None:
    """Also within a validation, and before the first checkpoint."""
    fail_once(monkeypatch, *moment)
    with pytest.raises(RuntimeError, match="out of memory"):
        start(arguments, tmp_path / "run")
    assert not RunFolder(tmp_path / "run").done.exists()
    assert_same_end(start(arguments, tmp_path / "run"), unbroken)


def test_a_run_that_is_moved_ends_like_an_unbroken_one(
    arguments: list[str], unbroken: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps the best checkpoint, which is better than the last one."""
    fail_once(monkeypatch, "training_step", 9)
    with pytest.raises(RuntimeError, match="out of memory"):
        start(arguments, tmp_path / "first")
    assert_same_end(start(arguments, (tmp_path / "first").rename(tmp_path / "moved")), unbroken)


@pytest.mark.parametrize("call", [3, 4])
def test_a_run_that_is_cut_off_while_it_saves_ends_like_an_unbroken_one(
    arguments: list[str], unbroken: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    """A partial checkpoint never replaces a complete one."""
    save = TorchCheckpointIO.save_checkpoint
    calls: list[Path] = []

    def save_half_once(self: TorchCheckpointIO, checkpoint: Any, path: Path, options: Any) -> None:
        calls.append(path)
        if len(calls) == call:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"half a checkpoint")
            raise RuntimeError("cut off")
        save(self, checkpoint, path, options)

    monkeypatch.setattr(TorchCheckpointIO, "save_checkpoint", save_half_once)
    with pytest.raises(RuntimeError, match="cut off"):
        start(arguments, tmp_path / "run")
    assert_same_end(start(arguments, tmp_path / "run"), unbroken)


def test_a_full_disk_is_explained_and_leaves_no_partial_checkpoint(
    arguments: list[str], unbroken: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(_: TorchCheckpointIO, checkpoint: Any, path: Path, options: Any) -> None:  # noqa: ARG001
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half a checkpoint")
        raise OSError(errno.ENOSPC, "No space left on device")

    run = RunFolder(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(TorchCheckpointIO, "save_checkpoint", fill)
        message = refusal(lambda: start(arguments, run.path))
    assert message.startswith(f"dragoman train: {run.path}: No space left on device; ")
    assert message.endswith(f"run the same command again: it resumes from {run.last_checkpoint}, if that exists")
    assert list(run.last_checkpoint.parent.iterdir()) == []
    assert_same_end(start(arguments, run.path), unbroken)


@pytest.mark.usefixtures("resettable_signals")
def test_ctrl_c_is_explained(
    arguments: list[str], unbroken: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = TranslationModule.training_step

    def interrupt(self: TranslationModule, batch: Any, index: int) -> Any:
        if self.trainer.global_step == 5:
            raise KeyboardInterrupt
        return step(self, batch, index)

    with monkeypatch.context() as patch:
        patch.setattr(TranslationModule, "training_step", interrupt)
        message = refusal(lambda: start(arguments, tmp_path / "run"))
    assert "interrupted; run the same command again" in message
    assert_same_end(start(arguments, tmp_path / "run"), unbroken)


def test_a_finished_run_stays_unchanged(
    arguments: list[str], unbroken: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in unbroken.path.rglob("*")}
    start(arguments, unbroken.path)
    assert capsys.readouterr().out == f"{unbroken.path}: already trained\n"
    assert {path: path.stat().st_mtime_ns for path in unbroken.path.rglob("*")} == before


@pytest.mark.parametrize("finished", [True, False])
def test_another_config_is_refused(arguments: list[str], tmp_path: Path, unbroken: RunFolder, finished: bool) -> None:
    run = RunFolder(tmp_path)
    run.config.write_bytes(unbroken.config.read_bytes())
    if finished:
        run.done.touch()
    message = refusal(lambda: start(arguments, run.path, "--training.seed", "2"))
    assert message.startswith(f"dragoman train: out: {run.path}: expected a new folder")


def test_validation_data_may_be_given(arguments: list[str], tmp_path: Path) -> None:
    run = start(arguments, tmp_path / "run", "--validation", write_pairs(tmp_path, "valid", ("bird moon", "hill")))
    assert run.samples.read_text(encoding="utf-8") == "en\tde\tbird moon\nen\tde\thill\n"


def test_a_direction_without_validation_data_has_samples_of_its_training(arguments: list[str], tmp_path: Path) -> None:
    """So that the run can be exported."""
    source, _, target = write_pairs(tmp_path, "train", toy_sentences()[:40]).removeprefix("files:").partition(",")
    given = ["--data", f"files:{target},{source}", "--validation", write_pairs(tmp_path, "valid", ("bird moon",))]
    run = start(arguments, tmp_path / "run", *given, "--training.max-steps=1", "--tokenizer.vocabulary-size=80")
    lines = run.samples.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "en\tde\tbird moon"
    assert lines[1:] == [f"de\ten\t{translate_toy(sentence)}" for sentence in toy_sentences()[:SAMPLES]]
    command_line.run("export", [str(run.path), "--out", str(tmp_path / "bundle")])


def test_pairs_too_long_are_left_out(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start(arguments, tmp_path / "run", "--model.max-target-tokens", "6")
    assert "training pairs exceed the token limits" in capsys.readouterr().out


def test_every_run_ends_with_a_validation(arguments: list[str], tmp_path: Path) -> None:
    """So no step is lost, and a short run has a checkpoint too."""
    run = start(arguments, tmp_path / "run", "--training.max-steps", "3")
    assert torch.load(run.last_checkpoint, weights_only=True)["global_step"] == 3
    assert run.load().steps == 3
