"""The Lightning module of a translation model, and training data that resumes."""

from collections.abc import Callable, Iterable
from typing import Any

import lightning
import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from dragoman.model.config import RunConfig, TrainingConfig
from dragoman.model.data.batches import Batch, BatchStream, TokenizedPairs, sorted_batches
from dragoman.model.network.layers import Dropout
from dragoman.model.run import build_model
from dragoman.model.tokenizer.tokenizer import OWN_IDS, SpecialIds
from dragoman.model.training.loss import (
    alignment_loss,
    cooldown,
    cosine,
    inverse_square_root,
    linear_rise,
    translation_loss,
)


class DivergedError(Exception):
    """The loss is not finite; the message has the step."""


class TranslationData(lightning.LightningDataModule):
    """Training and validation pairs as token-budget batches."""

    def __init__(
        self, training: Callable[[int], TokenizedPairs], validation: TokenizedPairs, config: TrainingConfig
    ) -> None:
        """Takes a function from an epoch to its training pairs, and the validation pairs."""
        super().__init__()
        self._config = config
        self._stream = BatchStream(training, config.batch_tokens, config.seed)
        self._validation = sorted_batches(validation, config.batch_tokens)
        # The step at which training resumed, and the batches of all processes up to it.
        self._resumed_step = 0
        self._resumed_batches = 0

    def train_dataloader(self) -> DataLoader[Batch]:
        """Returns the remaining batches."""
        if self.trainer is not None:
            self._stream.first_batch = self._count_batches(self.trainer)
        return _loader(self._stream)

    def _count_batches(self, trainer: lightning.Trainer) -> int:
        """Returns the number of batches that all processes have taken, also on other devices before a resume."""
        steps = trainer.global_step - self._resumed_step
        return self._resumed_batches + steps * trainer.world_size * self._config.accumulated_batches

    def val_dataloader(self) -> DataLoader[Batch]:
        """Returns every validation pair once."""
        return _loader(self._validation)

    def state_dict(self) -> dict[str, Any]:
        """Returns the first batch of every epoch so far, and the position in the stream."""
        state: dict[str, Any] = {"epoch_starts": self._stream.epoch_starts}
        if self.trainer is not None:
            state |= {"step": self.trainer.global_step, "batches": self._count_batches(self.trainer)}
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the state from `state_dict`.

        Checkpoints of earlier versions have no position: all their steps count as steps on the current devices.
        """
        self._stream.epoch_starts = state_dict["epoch_starts"]
        self._resumed_step = state_dict.get("step", 0)
        self._resumed_batches = state_dict.get("batches", 0)


class TranslationModule(lightning.LightningModule):
    """Teacher forcing with label-smoothed cross-entropy (Vaswani et al. 2017, section 5)."""

    def __init__(self, config: RunConfig, vocabulary_size: int, special: SpecialIds = OWN_IDS) -> None:
        super().__init__()
        self.config = config
        self.model = build_model(config.model, vocabulary_size, special)
        self._dropouts = [module for module in self.model.modules() if isinstance(module, Dropout)]

    def on_train_start(self) -> None:
        """Ends a resumed training at once if its early stopping ended it before the interruption."""
        stopping = self.trainer.early_stopping_callback
        if stopping is not None and stopping.stopping_reason_message is not None:
            self.trainer.should_stop = True

    def on_train_batch_start(self, *_: Any) -> None:
        """Sets the dropout of this step."""
        share = linear_rise(self.trainer.global_step, self.config.training.dropout_warmup_steps)
        for dropout in self._dropouts:
            dropout.share = share

    def training_step(self, batch: Batch, _index: int) -> Tensor:
        """Returns the mean loss per target token, in nats; raises DivergedError if the loss is not finite."""
        loss = self._loss(batch)
        if not loss.isfinite():
            raise DivergedError(f"the loss is {loss.item()} at step {self.trainer.global_step + 1}")
        self.log("loss", loss, prog_bar=True)
        return loss

    def _loss(self, batch: Batch) -> Tensor:
        training = self.config.training
        passes = 2 if training.r_drop else 1
        memory = self.model.encode(batch.source_ids.repeat(passes, 1))
        target_inputs = batch.target_inputs.repeat(passes, 1)
        weights = None
        if training.guided_alignment:
            states, weights = self.model.decode_aligned(target_inputs, memory)  # [P * B, T, D], [P * B, T, S]
        else:
            states = self.model.decode(target_inputs, memory)
        loss = translation_loss(
            states.reshape(passes, -1, states.shape[-1]),  # [P, B * T, D]
            self.model.output_weight,
            batch.target_labels.flatten(),
            training.label_smoothing,
            training.r_drop,
            output_bias=self.model.output_bias,
            pad_id=batch.pad_id,
        )
        if weights is None or batch.alignments is None:
            return loss
        aligned = alignment_loss(weights, batch.alignments.repeat(passes, 1, 1))
        self.log("alignment_loss", aligned)
        return loss + training.guided_alignment * aligned

    def validation_step(self, batch: Batch, _index: int) -> None:
        """Logs the mean loss per target token, without smoothing, and the share of tokens predicted correctly."""
        logits = self.model(batch.source_ids, batch.target_inputs).flatten(end_dim=1).float()
        labels = batch.target_labels.flatten()
        real = labels != batch.pad_id
        correct = (logits.argmax(dim=-1) == labels)[real].float().mean()
        loss = functional.cross_entropy(logits, labels, ignore_index=batch.pad_id)
        metrics = {"validation_loss": loss, "validation_accuracy": correct}
        self.log_dict(metrics, prog_bar=True, batch_size=int(real.sum()), sync_dist=True)

    def on_train_batch_end(self, *_: Any) -> None:
        """Ends training at the last step, which triggers a validation and a checkpoint at any step number."""
        if self.trainer.global_step == self.trainer.max_steps:
            self.trainer.should_stop = True

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Returns the optimizer and the configured schedule."""
        training = self.config.training
        optimizer = make_optimizer((item for item in self.parameters() if item.requires_grad), training)

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
        """Saves the random states, so that a resumed run has the dropout of an uninterrupted one."""
        checkpoint["random_state"] = torch.get_rng_state()
        if self.device.type == "cuda":
            checkpoint["device_random_state"] = torch.cuda.get_rng_state(self.device)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restores the random states."""
        torch.set_rng_state(checkpoint["random_state"].cpu())
        if self.device.type == "cuda" and "device_random_state" in checkpoint:
            torch.cuda.set_rng_state(checkpoint["device_random_state"].cpu(), self.device)


def make_optimizer(parameters: Iterable[nn.Parameter], config: TrainingConfig) -> torch.optim.Adam:
    """Returns Adam with the constants of Vaswani et al. 2017, section 5.3."""
    # Lightning does not clip gradients of a fused optimizer in mixed precision, because it may unscale them itself.
    fused = config.precision == "32-true"
    return torch.optim.Adam(
        parameters, lr=config.learning_rate, betas=(0.9, 0.98), eps=1e-9, fused=fused, foreach=not fused
    )


def _loader(batches: BatchStream | list[Batch]) -> DataLoader[Batch]:
    # A loader draws a number at every start. From the global generator, this would shift a resumed run's dropout.
    return DataLoader(batches, batch_size=None, generator=torch.Generator())  # type: ignore[arg-type]  # lists will do
