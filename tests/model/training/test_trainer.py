"""Setup of a run: precision, selection of the checkpoint, and validation interval."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

from dragoman.model.config import TrainingConfig
from dragoman.model.run import RunFolder
from dragoman.model.training.trainer import HardwareConfig, check_hardware, make_trainer
from tests.support.train_command import refusal


def trainer_of(folder: Path, **options: Any) -> Any:
    training = TrainingConfig.model_validate(options)
    return make_trainer(RunFolder(folder), training, HardwareConfig(accelerator="cpu"), [])


@pytest.mark.parametrize(("supported", "expected"), [(True, "bf16-mixed"), (False, "32-true")])
def test_auto_is_bfloat16_where_the_hardware_has_it(
    supported: bool, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: supported, raising=False)
    assert trainer_of(tmp_path, precision="auto").precision == expected


@pytest.mark.parametrize(
    ("selection", "monitor", "mode"),
    [("loss", "validation_loss", "min"), ("bleu", "validation_bleu", "max"), ("chrf", "validation_chrf", "max")],
)
def test_a_measure_picks_the_checkpoint_and_ends_a_run(selection: str, monitor: str, mode: str, tmp_path: Path) -> None:
    callbacks = trainer_of(tmp_path, selection=selection, patience=3).callbacks
    (best,) = [item for item in callbacks if isinstance(item, ModelCheckpoint) and item.filename == "best"]
    (stopping,) = [callback for callback in callbacks if isinstance(callback, EarlyStopping)]
    assert (best.monitor, best.mode) == (monitor, mode)
    assert (stopping.monitor, stopping.mode, stopping.patience) == (monitor, mode, 3)


def test_checkpoints_keep_their_state_under_the_name_of_lightnings_own(tmp_path: Path) -> None:
    """So that runs of earlier versions resume."""
    callbacks = trainer_of(tmp_path).callbacks
    (best,) = [item for item in callbacks if isinstance(item, ModelCheckpoint) and item.filename == "best"]
    assert best.state_key == ModelCheckpoint(tmp_path, monitor="validation_loss", mode="min").state_key


@pytest.mark.parametrize(
    "options", [{"devices": "0"}, {"devices": "x"}, {"accelerator": "foo"}, {"strategy": "foo"}], ids=str
)
def test_hardware_that_lightning_refuses_is_refused_in_one_line(options: dict[str, str]) -> None:
    message = refusal(lambda: check_hardware(HardwareConfig.model_validate({"accelerator": "cpu", **options})))
    assert message.startswith("dragoman train: hardware: ")


def test_the_validation_interval_counts_steps_and_not_batches(tmp_path: Path) -> None:
    assert trainer_of(tmp_path, validation_every_steps=5, accumulated_batches=3).val_check_interval == 15
