"""Averages of the parameters over the course of training, which generalise better than the parameters themselves."""

from typing import Any

from lightning.pytorch.callbacks import Callback, WeightAveraging
from torch.optim.swa_utils import get_ema_multi_avg_fn

from model.config import TrainingConfig


class LastAveraging(WeightAveraging):
    """The mean of the parameters at the last N validations, as checkpoint averaging (Vaswani et al. 2017, section 6.1).

    Before those, the parameters themselves stand for the average.
    """

    def __init__(self, config: TrainingConfig) -> None:
        super().__init__()
        every = config.validation_every_steps
        self._first_step = config.max_steps - (config.averaged_validations - 1) * every
        self._every = every
        self._last_step = config.max_steps

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:  # noqa: ARG002
        """Takes the parameters in before every validation."""
        if step_idx is None:
            return False
        step = step_idx + 1
        return step % self._every == 0 or step == self._last_step

    def on_train_batch_end(self, trainer: Any, *arguments: Any) -> None:
        """Forgets what came before the last N validations."""
        if self._average_model is not None and trainer.global_step <= self._first_step:
            self._average_model.n_averaged.zero_()
        super().on_train_batch_end(trainer, *arguments)


def weight_averaging(config: TrainingConfig) -> list[Callback]:
    """Returns the callback that averages as configured; none if nothing is averaged."""
    if config.averaging == "exponential":
        # All parameters at once: on a CPU four times as fast as one by one, which is a few per cent of a step.
        average = get_ema_multi_avg_fn(config.averaging_decay)  # type: ignore[no-untyped-call]
        return [WeightAveraging(multi_avg_fn=average)]
    if config.averaging == "last":
        return [LastAveraging(config)]
    return []
