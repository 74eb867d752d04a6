"""The live progress bar of a training: steps, loss, tokens per second, time left."""

import time
from typing import Any

from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm

from model.data.batches import Batch

REFRESH_STEPS = 10


class TrainingProgress(TQDMProgressBar):
    """A bar over all steps of the run: the stream of batches has no epochs to count."""

    def __init__(self) -> None:
        super().__init__(refresh_rate=REFRESH_STEPS)
        self._tokens = 0
        self._seconds = 0.0
        self._batch_started_seconds = 0.0

    @property
    def total_train_batches(self) -> int:
        """The number of batches that the bar runs to."""
        return self.trainer.max_steps * self.trainer.accumulate_grad_batches

    def init_train_tqdm(self) -> Tqdm:
        """Returns the bar; a resumed run begins within an epoch, where Lightning sets neither length nor start."""
        bar = super().init_train_tqdm()
        bar.total = self.total_train_batches
        bar.initial = self.trainer.global_step * self.trainer.accumulate_grad_batches
        return bar

    def on_train_batch_start(self, *_: Any) -> None:
        """Starts the clock: validations do not count."""
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
        """Returns what stands behind the bar."""
        metrics: dict[str, Any] = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)
        if "tokens_per_second" in trainer.logged_metrics:
            metrics["tokens/s"] = f"{trainer.logged_metrics['tokens_per_second']:,.0f}"
        return metrics
