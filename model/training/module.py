"""A translation model as Lightning trains it: loss, optimizer, schedule, and data that resumes."""

from collections.abc import Callable
from typing import Any

import lightning
import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader

from model.config import RunConfig, TrainingConfig
from model.data.batches import Batch, BatchStream, TokenizedPairs, sorted_batches
from model.network.alignment import Reinforce
from model.network.build import build_model
from model.network.layers import Dropout
from model.network.recurrent import Recurrent
from model.tokenizer.tokenizer import PAD_ID
from model.training.loss import cooldown, cosine, inverse_square_root, linear_rise, translation_loss


class DivergedError(Exception):
    """The loss is no number any more; the message names the step and what can be done."""


class TranslationData(lightning.LightningDataModule):
    """Training and validation pairs as token-budget batches."""

    def __init__(
        self, training: Callable[[int], TokenizedPairs], validation: TokenizedPairs, config: TrainingConfig
    ) -> None:
        """Plans no batch yet.

        Args:
            training: returns the pairs of an epoch.
            validation: always the same pairs.
            config: how to train.
        """
        super().__init__()
        self._config = config
        self._stream = BatchStream(training, config.batch_tokens, config.seed)
        self._validation = sorted_batches(validation, config.batch_tokens)

    def train_dataloader(self) -> DataLoader[Batch]:
        """Returns the batches that are still to come."""
        if self.trainer is not None:
            steps = self.trainer.global_step * self.trainer.world_size
            self._stream.first_batch = steps * self._config.accumulated_batches
        return _loader(self._stream)

    def val_dataloader(self) -> DataLoader[Batch]:
        """Returns every validation pair once."""
        return _loader(self._validation)

    def state_dict(self) -> dict[str, Any]:
        """Returns where the epochs so far began."""
        return {"epoch_starts": self._stream.epoch_starts}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores what `state_dict` kept."""
        self._stream.epoch_starts = state_dict["epoch_starts"]


class TranslationModule(lightning.LightningModule):
    """Teacher forcing with label-smoothed cross-entropy (Vaswani et al. 2017, section 5)."""

    def __init__(self, config: RunConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.model = build_model(config.model, vocabulary_size)
        self._dropouts = [module for module in self.model.modules() if isinstance(module, Dropout)]

    def on_train_batch_start(self, *_: Any) -> None:
        """Sets how much is dropped in this step."""
        share = linear_rise(self.trainer.global_step, self.config.training.dropout_warmup_steps)
        for dropout in self._dropouts:
            dropout.share = share

    def training_step(self, batch: Batch, _index: int) -> Tensor:
        """Returns the mean loss per target token, in nats.

        Raises:
            DivergedError: if it is no number.
        """
        model = self.model
        if isinstance(model, Recurrent) and model.reinforce is not None:
            loss = self._hard_loss(model, model.reinforce, batch)
        else:
            loss = self._loss(batch)
        if not loss.isfinite():
            raise DivergedError(f"the loss is {loss.item()} at step {self.trainer.global_step + 1}")
        self.log("loss", loss, prog_bar=True)
        return loss

    def _loss(self, batch: Batch) -> Tensor:
        training = self.config.training
        passes = 2 if training.r_drop else 1
        memory = self.model.encode(batch.source_ids.repeat(passes, 1))
        states = self.model.decode(batch.target_inputs.repeat(passes, 1), memory)  # [P * B, T, D]
        return translation_loss(
            states.reshape(passes, -1, states.shape[-1]),  # [P, B * T, D]
            self.model.output_weight,
            batch.target_labels.flatten(),
            training.label_smoothing,
            training.r_drop,
        )

    def _hard_loss(self, model: Recurrent, reinforce: Reinforce, batch: Batch) -> Tensor:
        """Adds what teaches a model with hard attention where to look: what it samples has no gradient."""
        sampled = model.decode_sampled(batch.target_inputs, model.encode(batch.source_ids))
        labels = batch.target_labels
        states = sampled.states.flatten(end_dim=1)[None]  # [1, B * T, D]
        loss = translation_loss(states, model.output_weight, labels.flatten(), self.config.training.label_smoothing)
        with torch.no_grad():
            log_probabilities = model.project(sampled.states).float().log_softmax(dim=-1)  # [B, T, V]
            likelihoods = log_probabilities.gather(2, labels[:, :, None])[:, :, 0]
        reinforcement: Tensor = reinforce(likelihoods, sampled, labels != PAD_ID)
        return loss + reinforcement

    def validation_step(self, batch: Batch, _index: int) -> None:
        """Logs the mean loss per target token, without smoothing, and the share of tokens predicted exactly."""
        logits = self.model(batch.source_ids, batch.target_inputs).flatten(end_dim=1).float()
        labels = batch.target_labels.flatten()
        real = labels != PAD_ID
        correct = (logits.argmax(dim=-1) == labels)[real].float().mean()
        loss = functional.cross_entropy(logits, labels, ignore_index=PAD_ID)
        metrics = {"validation_loss": loss, "validation_accuracy": correct}
        self.log_dict(metrics, prog_bar=True, batch_size=int(real.sum()), sync_dist=True)

    def on_train_batch_end(self, *_: Any) -> None:
        """Has the last step followed by a validation, which keeps it, wherever it falls."""
        if self.trainer.global_step == self.trainer.max_steps:
            self.trainer.should_stop = True

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Returns Adam with the constants of Vaswani et al. 2017, section 5.3, and the configured schedule."""
        training = self.config.training
        # Lightning clips no gradients of a fused optimizer in mixed precision: it might be the one to unscale them.
        fused = training.precision == "32-true"
        optimizer = torch.optim.Adam(
            self.parameters(), lr=training.learning_rate, betas=(0.9, 0.98), eps=1e-9, fused=fused, foreach=not fused
        )

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
        if self.device.type == "cuda":
            checkpoint["device_random_state"] = torch.cuda.get_rng_state(self.device)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restores what `on_save_checkpoint` kept."""
        torch.set_rng_state(checkpoint["random_state"].cpu())
        if self.device.type == "cuda" and "device_random_state" in checkpoint:
            torch.cuda.set_rng_state(checkpoint["device_random_state"].cpu(), self.device)


def _loader(batches: BatchStream | list[Batch]) -> DataLoader[Batch]:
    # A loader draws a number at every start. Drawn from the global generator, it would shift a resumed run's dropout.
    return DataLoader(batches, batch_size=None, generator=torch.Generator())  # type: ignore[arg-type]  # lists will do
