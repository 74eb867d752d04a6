"""Lightning's trainer with its callbacks: checkpoints, progress, parameter averaging, validation by translation."""

import logging
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import lightning
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import (
    Callback,
    EarlyStopping,
    LearningRateMonitor,
    ModelCheckpoint,
    TQDMProgressBar,
    WeightAveraging,
)
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.plugins.io import TorchCheckpointIO
from pydantic import Field
from torch.optim.swa_utils import get_ema_multi_avg_fn

from dragoman.model.config import Section, TrainingConfig
from dragoman.model.data.batches import Batch
from dragoman.model.data.segmentation import Segmentation
from dragoman.model.network.transformer import Transformer
from dragoman.model.run import RunFolder, whole
from dragoman.model.scoring import score
from dragoman.model.search import translate_all

REFRESH_STEPS = 10


class TrainingProgress(TQDMProgressBar):
    """A progress bar over all steps of the run, because the stream of batches has no fixed epochs."""

    def __init__(self) -> None:
        super().__init__(refresh_rate=REFRESH_STEPS)
        self._tokens = 0
        self._seconds = 0.0
        self._batch_started_seconds = 0.0

    @property
    def total_train_batches(self) -> int:
        """The length of the bar, in batches."""
        return self.trainer.max_steps * self.trainer.accumulate_grad_batches

    def init_train_tqdm(self) -> Tqdm:
        """Returns the bar with length and start; Lightning sets neither if a run resumes within an epoch."""
        bar = super().init_train_tqdm()
        bar.total = self.total_train_batches
        bar.initial = self.trainer.global_step * self.trainer.accumulate_grad_batches
        return bar

    def on_train_batch_start(self, *_: Any) -> None:
        """Starts the clock; validations do not count."""
        self._batch_started_seconds = time.monotonic()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Batch, batch_idx: int) -> None:
        """Counts the tokens of both sides."""
        self._seconds += time.monotonic() - self._batch_started_seconds
        self._tokens += batch.count_tokens() * trainer.world_size
        if (batch_idx + 1) % REFRESH_STEPS == 0:
            pl_module.log("tokens_per_second", self._tokens / self._seconds)
            self._tokens, self._seconds = 0, 0.0
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def get_metrics(self, trainer: Any, pl_module: Any) -> dict[str, Any]:
        """Returns the values next to the bar."""
        metrics: dict[str, Any] = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)
        if "tokens_per_second" in trainer.logged_metrics:
            metrics["tokens/s"] = f"{trainer.logged_metrics['tokens_per_second']:,.0f}"
        return metrics


class LastAveraging(WeightAveraging):
    """The mean of the parameters at the last N validations, as checkpoint averaging (Vaswani et al. 2017, section 6.1).

    Before those validations, the average equals the latest parameters.
    """

    def __init__(self, config: TrainingConfig) -> None:
        super().__init__()
        every = config.validation_every_steps
        self._first_step = config.max_steps - (config.averaged_validations - 1) * every
        self._every = every
        self._last_step = config.max_steps

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:  # noqa: ARG002
        """Updates the average before every validation."""
        if step_idx is None:
            return False
        step = step_idx + 1
        return step % self._every == 0 or step == self._last_step

    def on_train_batch_end(self, trainer: Any, *arguments: Any) -> None:
        """Resets the average before the last N validations."""
        if self._average_model is not None and trainer.global_step <= self._first_step:
            self._average_model.n_averaged.zero_()
        super().on_train_batch_end(trainer, *arguments)


def weight_averaging(config: TrainingConfig) -> list[Callback]:
    """Returns the configured averaging callback, or none."""
    if config.averaging == "exponential":
        # All parameters at once: on a CPU four times as fast as one by one, a few percent of a step.
        average = get_ema_multi_avg_fn(config.averaging_decay)  # type: ignore[no-untyped-call]
        return [WeightAveraging(multi_avg_fn=average)]
    return [LastAveraging(config)] if config.averaging == "last" else []


# Enough for a BLEU that distinguishes checkpoints; a validation set of many directions may have more.
MAX_SENTENCES = 1200
BATCH_SENTENCES = 100


class ValidationTranslation(Callback):
    """Translates validation sentences greedily and logs `validation_bleu` and `validation_chrf`.

    Must come before the averaging callback, which restores the parameters at the end of a validation.
    """

    def __init__(self, segmentation: Segmentation) -> None:
        self._tokenizer = segmentation.tokenizer
        self._sources: list[list[int]] = []
        self._starts: list[tuple[int, ...]] = []
        self.texts: list[str] = []
        self.references: list[str] = []
        self._languages: list[str] = []
        stride = max(1, sum(map(len, segmentation.corpora)) // MAX_SENTENCES)
        for corpus, encoded in zip(segmentation.corpora, segmentation.encoded, strict=True):
            prefix, start = segmentation.frame(corpus)
            lines = (encoded.sources[::stride], corpus.sources[::stride], corpus.targets[::stride])
            for ids, text, reference in zip(*lines, strict=True):
                source = [*prefix, *ids, *self._tokenizer.source_suffix]
                if len(source) <= segmentation.config.model.max_source_tokens:
                    self._sources.append(source)
                    self._starts.append(start)
                    self.texts.append(text)
                    self.references.append(reference)
                    self._languages.append(corpus.target_language)

    def translate(self, model: Transformer) -> list[str]:
        """Returns the translations of `texts`, the sentences that the model can read."""
        generated = translate_all(model, self._sources, BATCH_SENTENCES, self._starts)
        return [self._tokenizer.decode(item.target_ids) for item in generated]

    def on_validation_epoch_end(self, _trainer: Any, pl_module: Any) -> None:
        """Translates and logs."""
        quality = score(self.translate(pl_module.model), self.references, self._languages)
        pl_module.log_dict({"validation_bleu": quality.bleu, "validation_chrf": quality.chrf}, prog_bar=True)


# The logged measure of each selection, and whether a lower or a higher value is better.
MONITORS = {"loss": ("validation_loss", "min"), "bleu": ("validation_bleu", "max"), "chrf": ("validation_chrf", "max")}


class HardwareConfig(Section):
    """Where a training runs, in the terms of Lightning's Trainer; a resumed run may use other hardware."""

    accelerator: str = Field("auto", description="cpu, gpu, ... or auto")
    devices: str = Field("auto", description="devices per node: a number, a list such as 0,2, or auto for all")
    nodes: int = Field(1, gt=0, description="number of machines")
    strategy: str = Field("auto", description="distribution over devices: ddp, fsdp, ... or auto")

    def trainer_options(self) -> dict[str, Any]:
        """Returns the arguments of Lightning's Trainer."""
        return {**self.model_dump(exclude={"nodes"}), "num_nodes": self.nodes}


def check_hardware(hardware: HardwareConfig) -> None:
    """Raises SystemExit if Lightning does not find the hardware."""
    _silence()
    try:
        lightning.Trainer(
            **hardware.trainer_options(),
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
    except (ImportError, MisconfigurationException, RuntimeError, TypeError, ValueError) as error:
        raise SystemExit(f"dragoman train: hardware: {' '.join(str(error).split())}") from error


class WholeCheckpoints(TorchCheckpointIO):
    """Checkpoints that appear complete or not at all, even if the process is killed.

    Lightning moves them from the system's temporary folder, which means a copy if that is another file system.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Writes a temporary file in the same folder, then renames it."""
        with whole(Path(path)) as part:
            super().save_checkpoint(checkpoint, part, storage_options)


class MovableCheckpoint(ModelCheckpoint):
    """A ModelCheckpoint that keeps its best score if the run's folder was moved; Lightning drops it."""

    @property
    def state_key(self) -> str:
        """The key of ModelCheckpoint, which checkpoints have."""
        return super().state_key.replace(type(self).__qualname__, ModelCheckpoint.__qualname__, 1)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the state, with every path in the current folder."""
        state = {**state_dict, "dirpath": self.dirpath}
        for name in ("best_model_path", "kth_best_model_path", "last_model_path"):
            state[name] = self._moved(state[name])
        state["best_k_models"] = {self._moved(path): score for path, score in state["best_k_models"].items()}
        super().load_state_dict(state)

    def _moved(self, path: str) -> str:
        return str(Path(self.dirpath or "", Path(path).name)) if path else path


def make_trainer(
    folder: RunFolder, config: TrainingConfig, hardware: HardwareConfig, validation: Sequence[Callback]
) -> lightning.Trainer:
    """Returns a trainer that writes to `folder`; `validation` runs before averaged parameters are swapped out."""
    _silence()
    monitor, mode = MONITORS[config.selection]
    checkpoints = folder.last_checkpoint.parent
    callbacks = [
        *validation,
        *weight_averaging(config),
        LearningRateMonitor("step"),
        TrainingProgress(),
        *([EarlyStopping(monitor, mode=mode, patience=config.patience)] if config.patience else []),
        MovableCheckpoint(checkpoints, filename="best", monitor=monitor, mode=mode, enable_version_counter=False),
        # Runs after the validation and after the best checkpoint, so that its state includes the best one.
        MovableCheckpoint(checkpoints, filename="last", save_on_train_epoch_end=False, enable_version_counter=False),
    ]
    return lightning.Trainer(
        **hardware.trainer_options(),
        precision=chosen_precision(config),
        max_steps=config.max_steps,
        max_epochs=-1,
        accumulate_grad_batches=config.accumulated_batches,
        val_check_interval=config.validation_every_steps * config.accumulated_batches,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        # Every process validates all batches. Shared out, they would be padded to the same number per process, and
        # repeated ones would count twice.
        use_distributed_sampler=False,
        gradient_clip_val=config.gradient_clip,
        logger=TensorBoardLogger(folder.path, name=folder.logs.name, version=""),
        callbacks=callbacks,
        plugins=[WholeCheckpoints()],
        enable_model_summary=False,
        log_every_n_steps=50,
    )


def chosen_precision(config: TrainingConfig) -> Literal["32-true", "bf16-mixed", "16-mixed"]:
    """Returns the number format of a training on this machine."""
    if config.precision != "auto":
        return config.precision
    if torch.cuda.is_available():
        return "bf16-mixed" if torch.cuda.is_bf16_supported(including_emulation=False) else "32-true"
    return "bf16-mixed" if torch.ops.mkldnn._is_mkldnn_bf16_supported() else "32-true"  # noqa: SLF001  no public way


def _silence() -> None:
    # Batches come from memory, where workers would only copy them; a folder with checkpoints is how a run resumes.
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    warnings.filterwarnings("ignore", message=".*exists and is not empty.*")
    # A run of a few steps logs at its end.
    warnings.filterwarnings("ignore", message=".*is smaller than the logging interval.*")
    # Lightning calls a deprecated function of PyTorch.
    warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
