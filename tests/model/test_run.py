"""A run folder loads again; missing and damaged files are reported."""

import errno
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest
import torch

from dragoman.model.errors import RunError
from dragoman.model.run import RunFolder, whole, write_whole
from tests.support.toy import TOY_CONFIG


@pytest.fixture
def copied(toy_run: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy of a run that a test may damage."""
    return RunFolder(copytree(toy_run.path, tmp_path / "run"))


def test_a_run_is_loaded_ready_for_use(toy_run: RunFolder) -> None:
    trained = toy_run.load()
    assert trained.config == TOY_CONFIG
    assert trained.tokenizer.model == toy_run.tokenizer.read_bytes()
    assert not any(module.training for module in trained.model.modules())


def test_the_best_checkpoint_is_loaded(toy_run: RunFolder) -> None:
    trained = toy_run.load()
    checkpoint = torch.load(toy_run.best_checkpoint, weights_only=True)
    assert trained.steps == checkpoint["global_step"]
    state = trained.model.state_dict()
    assert {f"model.{name}" for name in state} == set(checkpoint["state_dict"])
    assert all(torch.equal(checkpoint["state_dict"][f"model.{name}"], state[name]) for name in state)


def test_a_folder_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no checkpoint, .*`dragoman train`"):
        RunFolder(tmp_path).load()


def read_parameters(run: RunFolder) -> object:
    return torch.load(run.best_checkpoint, map_location="cpu", weights_only=True)["state_dict"]


DAMAGES: dict[str, Callable[[RunFolder], object]] = {
    "no configuration": lambda run: run.config.unlink(),
    "no tokenizer": lambda run: run.tokenizer.unlink(),
    "another configuration": lambda run: run.config.write_text("color: green\n", encoding="utf-8"),
    "no YAML": lambda run: run.config.write_text("model: {", encoding="utf-8"),
    "garbage for a tokenizer": lambda run: run.tokenizer.write_bytes(b"garbage"),
    "garbage for a checkpoint": lambda run: run.best_checkpoint.write_bytes(b"garbage"),
    "half a checkpoint": lambda run: run.best_checkpoint.write_bytes(run.best_checkpoint.read_bytes()[:5000]),
    "a checkpoint of another model": lambda run: run.config.write_text(
        run.config.read_text("utf-8").replace("d_ff: 128", "d_ff: 64"), "utf-8"
    ),
    "no number of steps": lambda run: torch.save({"state_dict": read_parameters(run)}, run.best_checkpoint),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_refused(copied: RunFolder, damage: str) -> None:
    DAMAGES[damage](copied)
    with pytest.raises(RunError, match=str(copied.path)):
        copied.load()


def test_a_write_that_fails_midway_leaves_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_bytes(b"old")

    def fill_the_disk() -> None:
        with whole(path) as part:
            part.write_bytes(b"ne")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        fill_the_disk()
    assert [entry.read_bytes() for entry in tmp_path.iterdir()] == [b"old"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    write_whole(path, b"old")
    (tmp_path / "kept.part").mkdir()  # blocks the temporary file next to the old one
    with pytest.raises(IsADirectoryError):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
