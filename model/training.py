"""The Transformer as Lightning trains it: loss, optimiser, schedule, progress, and data that resumes."""

from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader

from model.architectures import build_model
from model.batches import Batch, BatchStream, TokenizedPairs, sorted_batches
from model.config import RunConfig
from model.run import whole
from model.schedule import cooldown, cosine, inverse_square_root
from model.tokenizer import PAD_ID


class TranslationData(lightning.LightningDataModule):
    """Training and validation pairs as token-budget batches."""

    def __init__(self, training: TokenizedPairs, validation: TokenizedPairs, batch_tokens: int, seed: int) -> None:
        super().__init__()
        self._stream = BatchStream(training, batch_tokens, seed)
        self._validation = sorted_batches(validation, batch_tokens)

    def train_dataloader(self) -> DataLoader[Batch]:
        """Returns the batches that are still to come."""
        if self.trainer is not None:
            self._stream.first_step = self.trainer.global_step
        return _loader(self._stream)

    def val_dataloader(self) -> DataLoader[Batch]:
        """Returns every validation pair once."""
        return _loader(self._validation)


class TranslationModule(lightning.LightningModule):
    """Teacher forcing with label-smoothed cross-entropy (Vaswani et al. 2017, section 5)."""

    def __init__(self, config: RunConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.model = build_model(config.model, vocabulary_size)

    def training_step(self, batch: Batch, _index: int) -> Tensor:
        """Returns the mean label-smoothed loss per target token, in nats."""
        logits = self.model(batch.source_ids, batch.target_inputs)
        loss = token_loss(logits, batch.target_labels, self.config.training.label_smoothing)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: Batch, _index: int) -> None:
        """Logs the mean loss per target token, without smoothing, and the share of tokens predicted exactly."""
        logits = self.model(batch.source_ids, batch.target_inputs)
        real = batch.target_labels != PAD_ID
        correct = (logits.argmax(dim=-1) == batch.target_labels)[real].float().mean()
        metrics = {"validation_loss": token_loss(logits, batch.target_labels), "validation_accuracy": correct}
        self.log_dict(metrics, prog_bar=True, batch_size=int(real.sum()))

    def on_train_batch_end(self, *_: Any) -> None:
        """Has the last step followed by a validation, which keeps it, wherever it falls."""
        if self.trainer.global_step == self.trainer.max_steps:
            self.trainer.should_stop = True

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Returns Adam with the paper's constants and schedule (section 5.3)."""
        training = self.config.training
        optimizer = torch.optim.Adam(self.parameters(), lr=training.learning_rate, betas=(0.9, 0.98), eps=1e-9)

        def learning_rate_share(steps_done: int) -> float:
            step = steps_done + 1
            if training.schedule == "cosine":
                share = cosine(step, training.warmup_steps, training.max_steps)
            else:
                share = inverse_square_root(step, training.warmup_steps)
            return share * cooldown(step, training.max_steps, training.cooldown_steps)

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, learning_rate_share)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keeps the state of the random numbers, so that a resumed run drops the units an unbroken one would."""
        checkpoint["random_state"] = torch.get_rng_state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restores what `on_save_checkpoint` kept."""
        torch.set_rng_state(checkpoint["random_state"].cpu())


class WholeCheckpoints(TorchCheckpointIO):
    """Checkpoints that appear complete or not at all, even if the process is killed while it writes one.

    Lightning moves them from the system's temporary folder, which on another file system means copying.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Writes beside the old checkpoint, then takes its place."""
        with whole(Path(path)) as part:
            super().save_checkpoint(checkpoint, part, storage_options)


class TrainingProgress(TQDMProgressBar):
    """A bar over all steps of the run: the stream of batches has no epochs to count."""

    @property
    def total_train_batches(self) -> int:
        """The number of steps that the bar runs to."""
        return self.trainer.max_steps

    def init_train_tqdm(self) -> Tqdm:
        """Returns the bar; a resumed run begins within an epoch, where Lightning sets neither length nor start."""
        bar = super().init_train_tqdm()
        bar.total, bar.initial = self.trainer.max_steps, self.trainer.global_step
        return bar


def _loader(batches: BatchStream | list[Batch]) -> DataLoader[Batch]:
    # A loader draws a number at every start. Drawn from the global generator, it would shift a resumed run's dropout.
    return DataLoader(batches, batch_size=None, generator=torch.Generator())  # type: ignore[arg-type]  # lists will do


def token_loss(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Returns the mean cross-entropy per real token, in nats.

    Label smoothing gives wrong tokens a share of the probability (Szegedy et al. 2016, arXiv:1512.00567, section 7).

    Args:
        logits: float [B, T, V].
        labels: int64 [B, T]; PAD_ID counts for nothing.
        label_smoothing: the share.
    """
    return functional.cross_entropy(
        logits.flatten(end_dim=1), labels.flatten(), ignore_index=PAD_ID, label_smoothing=label_smoothing
    )
