"""Lightning's trainer as Dragoman uses it: precision, devices, checkpoints that resume, and everything that watches."""

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import lightning
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.plugins.io import TorchCheckpointIO
from pydantic import Field

from model.config import Section, TrainingConfig
from model.run import RunFolder, whole
from model.training.averaging import weight_averaging
from model.training.progress import TrainingProgress

# What the validation logs for each way to pick a checkpoint, and whether less of it is better.
MONITORS = {
    "loss": ("validation_loss", "min"),
    "bleu": ("validation_bleu", "max"),
    "chrf": ("validation_chrf", "max"),
}


class HardwareConfig(Section):
    """Where a training runs, as Lightning's Trainer understands it; a run may move to other hardware."""

    accelerator: str = Field("auto", description="cpu, gpu, ... or auto")
    devices: str = Field("auto", description="devices of each node: a number, a list such as 0,2, or auto: all")
    nodes: int = Field(1, gt=0, description="machines that train together")
    strategy: str = Field("auto", description="how devices train together: ddp, fsdp, ... or auto")


class WholeCheckpoints(TorchCheckpointIO):
    """Checkpoints that appear complete or not at all, even if the process is killed while it writes one.

    Lightning moves them from the system's temporary folder, which on another file system means copying.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Writes beside the old checkpoint, then takes its place."""
        with whole(Path(path)) as part:
            super().save_checkpoint(checkpoint, part, storage_options)


def make_trainer(
    folder: RunFolder, config: TrainingConfig, hardware: HardwareConfig, validation: Sequence[Callback]
) -> lightning.Trainer:
    """Returns the trainer of a run.

    Args:
        folder: gets checkpoints and logs.
        config: how to train.
        hardware: where.
        validation: what else happens at a validation, before averaged parameters make way for the current ones.
    """
    _silence()
    monitor, mode = MONITORS[config.selection]
    checkpoints = folder.last_checkpoint.parent
    callbacks = [
        *validation,
        *weight_averaging(config),
        LearningRateMonitor("step"),
        TrainingProgress(),
        *([EarlyStopping(monitor, mode=mode, patience=config.patience)] if config.patience else []),
        ModelCheckpoint(checkpoints, filename="best", monitor=monitor, mode=mode, enable_version_counter=False),
        # After a validation and behind the best one, so that it knows what the best one is.
        ModelCheckpoint(checkpoints, filename="last", save_on_train_epoch_end=False, enable_version_counter=False),
    ]
    return lightning.Trainer(
        accelerator=hardware.accelerator,
        devices=hardware.devices,
        num_nodes=hardware.nodes,
        strategy=hardware.strategy,
        precision=_precision(config),
        max_steps=config.max_steps,
        max_epochs=-1,
        accumulate_grad_batches=config.accumulated_batches,
        val_check_interval=config.validation_every_steps * config.accumulated_batches,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        gradient_clip_val=config.gradient_clip,
        logger=TensorBoardLogger(folder.path, name=folder.logs.name, version=""),
        callbacks=callbacks,
        plugins=[WholeCheckpoints()],
        enable_model_summary=False,
        log_every_n_steps=50,
    )


def _precision(config: TrainingConfig) -> Literal["32-true", "bf16-mixed", "16-mixed"]:
    if config.precision != "auto":
        return config.precision
    if torch.cuda.is_available():
        return "bf16-mixed" if torch.cuda.is_bf16_supported(including_emulation=False) else "32-true"
    return "bf16-mixed" if torch.ops.mkldnn._is_mkldnn_bf16_supported() else "32-true"  # noqa: SLF001  no public way


def _silence() -> None:
    # Batches come from memory, so that workers would only copy them; a folder with checkpoints is how a run resumes.
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    warnings.filterwarnings("ignore", message=".*exists and is not empty.*")
    # A run of a few steps is logged at its end.
    warnings.filterwarnings("ignore", message=".*is smaller than the logging interval.*")
    # Lightning asks PyTorch in a way that is going out of use.
    warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
