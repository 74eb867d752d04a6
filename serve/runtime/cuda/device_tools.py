"""What a device does beside running the model: chooses tokens and moves rows about.

Each tool is a graph without weights; `export.graphs.device_graphs` says what they compute and writes their files.
"""

from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from serve.runtime.cuda.device import FLOAT, Device, Given, Memory, View
from serve.runtime.onnx_runtime import Provider, open_session, session_options

FOLDER = Path(__file__).parent / "device_graphs"


class DeviceTools(NamedTuple):
    """The sessions of the tools, all on one device."""

    device: Device
    zeros: Any
    choose: Any
    token_scores: Any
    topk: Any
    copy_rows: Any
    gather_rows: Any
    resize: Any

    @classmethod
    def load(cls, device: Device, provider: Provider) -> Self:
        """Opens the graphs.

        Args:
            device: where they run.
            provider: what computes them there.

        Raises:
            BundleError: if ONNX Runtime refuses one.
        """
        options = session_options(threads=1)
        names = cls._fields[1:]
        return cls(device, *(open_session(FOLDER / f"{name}.onnx", options, [provider]) for name in names))

    def allocate(self, words: int) -> Memory:
        """Returns so many words of zeros."""
        return self.device.allocate(self.zeros, words)

    def choose_tokens(
        self, logits: View, last_id: NDArray[np.int64], log_probabilities: View
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Makes log-probabilities of logits, both [R, V], and returns the best token of each row and its own.

        Returns:
            token ids, int64 [R], and natural log-probabilities, float32 [R].
        """
        token_ids, scores = self.device.run(
            self.choose,
            {"logits": logits, "last_id": last_id},
            {"log_probabilities": log_probabilities},
            ("token_ids", "token_scores"),
        )
        return token_ids[:, 0], scores[:, 0]

    def scores_of(self, log_probabilities: View, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns the log-probability of one token of each row, float32 [R]."""
        inputs: Given = {"log_probabilities": log_probabilities, "token_ids": token_ids[:, np.newaxis]}
        (scores,) = self.device.run(self.token_scores, inputs, {}, ("token_scores",))
        column: NDArray[np.float32] = scores[:, 0]
        return column

    def best(self, log_probabilities: View, count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns the best scores of each row, float32 [R, count], and their tokens, int64 [R, count]."""
        inputs: Given = {"scores": log_probabilities, "count": np.array([count])}
        scores, token_ids = self.device.run(self.topk, inputs, {}, ("best_scores", "token_ids"))
        return scores, token_ids

    def copy(
        self,
        source: View | NDArray[np.float32],
        target: View,
        source_rows: NDArray[np.int64],
        target_rows: NDArray[np.int64],
    ) -> None:
        """Writes rows of a source, [N, W] words, over rows of a target, [P, W] words.

        Args:
            source: where rows are read; it may be the target, if no row is both.
            target: where they are written.
            source_rows: int64 [M].
            target_rows: int64 [M]; where one occurs twice, so does its source.
        """
        rows = {"source_rows": source_rows, "target_rows": target_rows[:, np.newaxis]}
        self.device.run(self.copy_rows, {"source": source, "target": target, **rows}, {"copied": target})

    def fetch(self, source: View, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns rows of a matrix, float32 [M, W], in this machine's memory."""
        inputs: Given = {"source": source, "source_rows": rows}
        values: NDArray[np.float32]
        (values,) = self.device.run(self.gather_rows, inputs, {}, ("rows",))
        return values

    def change_capacity(self, source: View, target: View) -> None:
        """Copies positions, from [R, H, C, W] to [R, H, P, W] words, as many as there are on both sides.

        What stands behind them is a copy of the last position: finite, if that is.
        """
        positions = np.minimum(np.arange(target.shape[2]), source.shape[2] - 1)
        self.device.run(self.resize, {"source": source, "positions": positions}, {"resized": target})


def as_matrix(view: View, rows: int) -> View:
    """Returns memory as so many rows of words."""
    return View(view.pointer, FLOAT, (rows, view.words // rows))
