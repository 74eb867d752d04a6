"""Translates with a bundle's graphs in a plain loop, without the engine; greedy search only.

All sentences of a batch start together. It is the reference for the engine, and selects golden sentences.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from export.answer import Answer
from serve.bundle.bundle import Bundle
from serve.bundle.directions import directions_of
from serve.engine.prefill import pad
from serve.runtime.model import NO_ROWS, Scores
from serve.runtime.placement import ModelSessions, open_sessions

BATCH_ROWS = 50


class GraphDecoder:
    """A `Stepper` for ONNX Runtime, which also searches greedily. B rows, V vocabulary."""

    def __init__(self, sessions: ModelSessions, rows: int = BATCH_ROWS) -> None:
        """Allocates state for batches of at most `rows` rows."""
        manifest = sessions.manifest
        self.bos_id = manifest.bos_id
        self.max_target_tokens = manifest.max_target_tokens
        self._eos_id = manifest.eos_id
        self._pad_id = manifest.pad_id
        self._rows = rows
        self._runtime = sessions.runtime(rows)
        self._source_lengths = np.zeros(0, np.int32)
        self._position = 0

    def start(self, sources: Sequence[tuple[int, ...]]) -> None:
        """Encodes B sources; discards the previous ones."""
        source_ids, self._source_lengths = pad(sources, self._pad_id)  # [B, S], [B]
        self._position = 0
        self._runtime.encode(source_ids, self._source_lengths, [[row] for row in range(len(sources))])

    def step(self, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Reads the last token of each row, int64 [B]; returns logits, float32 [B, V], valid until the next step."""
        rows = np.arange(len(token_ids))
        return self._score(token_ids, rows).fetch(rows)

    def _score(self, token_ids: NDArray[np.int64], scored_rows: NDArray[np.int64] = NO_ROWS) -> Scores:
        """Reads the last token of each row, int64 [B]; returns the scores of the next tokens."""
        positions = np.full(len(token_ids), self._position, np.int32)
        self._position += 1
        rows = np.arange(len(token_ids))
        return self._runtime.step(rows, token_ids, positions, self._source_lengths, scored_rows=scored_rows)

    def translate(
        self, sources: Sequence[tuple[int, ...]], advance: Callable[[int], object] = lambda _: None
    ) -> list[Answer]:
        """Returns greedy translations; calls `advance` with the size of each finished batch."""
        answers = []
        for start in range(0, len(sources), self._rows):
            batch = sources[start : start + self._rows]
            answers += self._translate_batch(batch)
            advance(len(batch))
        return answers

    def _translate_batch(self, sources: Sequence[tuple[int, ...]]) -> list[Answer]:
        self.start(sources)
        running = rows = np.arange(len(sources))
        token_ids = np.full(len(sources), self.bos_id)
        targets: list[list[int]] = [[] for _ in sources]
        scores: list[list[float]] = [[] for _ in sources]
        for _ in range(self.max_target_tokens):
            token_scores, token_ids = (best[:, 0] for best in self._score(token_ids).best(rows, 1))
            for row in running.tolist():
                scores[row].append(float(token_scores[row]))
            running = running[token_ids[running] != self._eos_id]
            for row in running.tolist():
                targets[row].append(int(token_ids[row]))
            if not len(running):
                break
        # cumsum adds in the engine's order; another order would round differently.
        sums = [float(np.cumsum(own)[-1]) for own in scores]
        return [Answer(tuple(ids), total, tuple(own)) for ids, total, own in zip(targets, sums, scores, strict=True)]

    def leads(
        self,
        sources: Sequence[tuple[int, ...]],
        targets: Sequence[tuple[int, ...]],
        starts: Sequence[tuple[int, ...]],
    ) -> list[float]:
        """Returns by how much the logit of each target token leads, at the step where it leads least.

        A lead is negative if another token is better. The end token counts as the last target token. The tokens of a
        start precede those of the target, and their leads do not count.
        """
        leads: list[float] = []
        for first in range(0, len(sources), self._rows):
            batch = slice(first, first + self._rows)
            leads += self._leads_of_batch(sources[batch], targets[batch], starts[batch])
        return leads

    def _leads_of_batch(
        self,
        sources: Sequence[tuple[int, ...]],
        targets: Sequence[tuple[int, ...]],
        starts: Sequence[tuple[int, ...]],
    ) -> list[float]:
        rows_of_ids = [(*start, *target) for start, target in zip(starts, targets, strict=True)]
        steps = min(max(map(len, rows_of_ids)) + 1, self.max_target_tokens)
        forced = np.full((len(targets), steps), self._eos_id)
        for row, ids in zip(forced, rows_of_ids, strict=True):
            row[: len(ids)] = ids
        first_steps, last_steps = (np.array([len(ids) for ids in each]) for each in (starts, rows_of_ids))
        self.start(sources)
        leads, rows = np.full(len(targets), np.inf), np.arange(len(targets))
        token_ids = np.full(len(targets), self.bos_id)
        for position, wanted in enumerate(forced.T):
            logits = self.step(token_ids)
            own = logits[rows, wanted]
            logits[rows, wanted] = -np.inf
            running = (first_steps <= position) & (position <= last_steps)
            leads = np.where(running, np.minimum(leads, own - logits.max(axis=1)), leads)
            token_ids = np.ascontiguousarray(wanted)
        return [float(lead) for lead in leads]


def golden_leads(bundle: Bundle) -> list[float]:
    """Returns the smallest lead of each golden translation in a bundle's graphs, computed on the CPU."""
    decoder, directions = GraphDecoder(open_sessions(bundle, "cpu")), directions_of(bundle.manifest)
    found = [directions.find(each.source_language, each.target_language) for each in bundle.golden]
    return decoder.leads(
        [each.source_ids for each in bundle.golden],
        [each.target_ids for each in bundle.golden],
        [() if each is None else each.start for each in found],
    )
