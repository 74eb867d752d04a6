"""Averaged parameters follow their formula and are stored in checkpoints."""

from pathlib import Path
from typing import Any

import lightning
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from dragoman.model.config import TrainingConfig
from dragoman.model.training.trainer import weight_averaging

# Lightning warns of a loader without workers and of a step that returns no loss.
pytestmark = pytest.mark.filterwarnings("ignore")

STEPS, EVERY = 23, 5
QUIET: dict[str, Any] = dict.fromkeys(("enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)


class Walk(lightning.LightningModule):
    """A single parameter, set to the step number by each step; validations record it."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.zeros(1))
        self.validated: dict[int, float] = {}
        self.automatic_optimization = False

    def training_step(self, _batch: Tensor, _index: int) -> None:
        optimizer = self.optimizers()
        assert isinstance(optimizer, LightningOptimizer)
        optimizer.step()
        with torch.no_grad():
            self.place.fill_(float(self.trainer.global_step))

    def validation_step(self, _batch: Tensor, _index: int) -> None:
        self.validated[self.trainer.global_step] = self.place.item()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.0)


def walk(callbacks: list[Callback], folder: Path, steps: int = STEPS, checkpoint: Path | None = None) -> Walk:
    module = Walk()
    loader: DataLoader[Any] = DataLoader(torch.zeros(100, 1))  # type: ignore[arg-type]  # a tensor will do
    limits: dict[str, Any] = {"max_steps": steps, "max_epochs": -1, "limit_val_batches": 1, "num_sanity_val_steps": 0}
    trainer = lightning.Trainer(
        accelerator="cpu", val_check_interval=EVERY, callbacks=callbacks, logger=False, **limits, **QUIET
    )
    trainer.fit(module, loader, loader, ckpt_path=checkpoint)
    trainer.save_checkpoint(folder / "end.ckpt")
    return module


def test_nothing_is_averaged_by_default(tmp_path: Path) -> None:
    assert weight_averaging(TrainingConfig()) == []
    assert walk([], tmp_path).validated == {step: step for step in range(EVERY, STEPS, EVERY)}


def test_an_exponential_average_forgets_at_the_configured_rate(tmp_path: Path) -> None:
    callbacks = weight_averaging(TrainingConfig(averaging="exponential", averaging_decay=0.8))
    average, expected = 1.0, {}
    for step in range(2, STEPS + 1):
        average = 0.8 * average + 0.2 * step
        expected[step] = average
    validated = walk(callbacks, tmp_path).validated
    assert validated == {step: pytest.approx(expected[step], rel=1e-5) for step in range(EVERY, STEPS, EVERY)}


@pytest.mark.parametrize("resume", [False, True])
def test_the_last_validations_are_averaged_and_those_before_are_not(tmp_path: Path, resume: bool) -> None:
    """With three: before the third last validation the average equals the parameters."""
    config = TrainingConfig(averaging="last", averaged_validations=3, max_steps=20, validation_every_steps=EVERY)
    start = None
    validated: dict[int, float] = {}
    if resume:
        validated |= walk(weight_averaging(config), tmp_path, steps=15).validated
        start = tmp_path / "end.ckpt"
    validated |= walk(weight_averaging(config), tmp_path, steps=20, checkpoint=start).validated
    assert validated == {5: 5.0, 10: 10.0, 15: 12.5, 20: 15.0}
    kept = torch.load(tmp_path / "end.ckpt", weights_only=False)["state_dict"]["place"].item()
    np.testing.assert_allclose(kept, 15.0)
