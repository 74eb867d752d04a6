"""A bundle translated without the engine: all sentences of a batch start together, and each step is one loop's turn.

The obvious way to use the graphs: what the engine does in company is held against it, and golden sentences are chosen
by it. Greedy search only. Knows no text.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from export.verify.answer import Answer
from serve.bundle.bundle import Bundle
from serve.runtime.model import Scores
from serve.runtime.placement import ModelSessions, open_sessions

BATCH_ROWS = 50


class RuntimeStepper:
    """ONNX Runtime, step by step; see `export.verify.stepper`."""

    def __init__(self, sessions: ModelSessions) -> None:
        """Holds the state of at most BATCH_ROWS rows."""
        self.manifest = sessions.manifest
        self.bos_id = self.manifest.bos_id
        self.max_target_tokens = self.manifest.max_target_tokens
        self._runtime = sessions.runtime(BATCH_ROWS)
        self._source_lengths = np.zeros(0, np.int32)
        self._position = 0

    def start(self, sources: Sequence[tuple[int, ...]]) -> None:
        """Reads B sources, and forgets those before."""
        self._position = 0
        self._source_lengths = np.array([len(source) for source in sources], np.int32)
        source_ids = np.full((len(sources), self._source_lengths.max()), self.manifest.pad_id)  # [B, S]
        for row, source in zip(source_ids, sources, strict=True):
            row[: len(source)] = source
        self._runtime.encode(source_ids, self._source_lengths, np.arange(len(sources)))

    def step(self, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Reads the last token of each row, int64 [B]; returns logits, float32 [B, V], valid until the next step."""
        return self._runtime.decode_step(token_ids, self._next_positions(), self._source_lengths)

    def score(self, token_ids: NDArray[np.int64]) -> Scores:
        """Reads the last token of each row, int64 [B]; returns what the step says of the next tokens."""
        return self._runtime.step(token_ids, self._next_positions(), self._source_lengths)

    def _next_positions(self) -> NDArray[np.int32]:
        self._position += 1
        return np.full(len(self._source_lengths), self._position - 1, np.int32)


def translate(bundle: Bundle, sources: Sequence[tuple[int, ...]]) -> list[Answer]:
    """Returns what a bundle answers to each source, greedily."""
    return translate_by_hand(RuntimeStepper(open_sessions(bundle, "cpu")), sources)


def translate_by_hand(
    stepper: RuntimeStepper, sources: Sequence[tuple[int, ...]], advance: Callable[[int], object] = lambda _: None
) -> list[Answer]:
    """Returns the greedy translation of each source; calls `advance` with the size of each batch that is done."""
    answers = []
    for start in range(0, len(sources), BATCH_ROWS):
        batch = sources[start : start + BATCH_ROWS]
        answers += _translate_batch(stepper, batch)
        advance(len(batch))
    return answers


def _translate_batch(stepper: RuntimeStepper, sources: Sequence[tuple[int, ...]]) -> list[Answer]:
    stepper.start(sources)
    token_ids = np.full(len(sources), stepper.bos_id)
    targets: list[list[int]] = [[] for _ in sources]
    scores: list[list[float]] = [[] for _ in sources]
    running = everything = np.arange(len(sources))
    for _ in range(stepper.max_target_tokens):
        said = stepper.score(token_ids)
        token_ids = said.greedy(everything)
        step_scores = said.of(everything, token_ids)
        for row in running.tolist():
            scores[row].append(float(step_scores[row]))
        running = running[token_ids[running] != stepper.manifest.eos_id]
        for row in running.tolist():
            targets[row].append(int(token_ids[row]))
        if not len(running):
            break
    # One after the other, as the engine adds: other orders round otherwise.
    sums = [float(np.cumsum(own)[-1]) for own in scores]
    return [Answer(tuple(target), total, tuple(own)) for target, total, own in zip(targets, sums, scores, strict=True)]
