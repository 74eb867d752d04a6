"""Translates with a bundle's graphs in a plain loop, without the engine; greedy search only.

All sentences of a batch start together. It is the reference for the engine, and writes golden sentences.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dragoman.export.answer import Answer
from dragoman.serve.engine.running import pad
from dragoman.serve.runtime.model import NO_ROWS, Scores
from dragoman.serve.runtime.placement import ModelSessions

BATCH_ROWS = 50


class Lead(NamedTuple):
    """A translation, and by how much the logit of its tokens leads at the step where it leads least."""

    answer: Answer
    lead: float


class GraphDecoder:
    """The graphs of a bundle with the state of one batch, which also search greedily. B rows, V vocabulary."""

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
        return self._score(token_ids, scored_rows=rows).fetch(rows)

    def _score(
        self, token_ids: NDArray[np.int64], *, scored_rows: NDArray[np.int64] = NO_ROWS, best_count: int = 1
    ) -> Scores:
        """Reads the last token of each row, int64 [B]; returns the scores of the next tokens."""
        positions = np.full(len(token_ids), self._position, np.int32)
        self._position += 1
        rows = np.arange(len(token_ids))
        return self._runtime.step(
            rows, token_ids, positions, self._source_lengths, scored_rows=scored_rows, best_count=best_count
        )

    def translate(
        self, sources: Sequence[tuple[int, ...]], advance: Callable[[int], object] = lambda _: None
    ) -> list[Answer]:
        """Returns greedy translations; calls `advance` with the size of each finished batch."""
        return [lead.answer for lead in self.leads(sources, advance=advance)]

    def leads(
        self,
        sources: Sequence[tuple[int, ...]],
        start: tuple[int, ...] = (),
        advance: Callable[[int], object] = lambda _: None,
    ) -> list[Lead]:
        """Returns greedy translations with their leads; `start` tokens precede each one and count in its limit."""
        found = []
        for first in range(0, len(sources), self._rows):
            batch = sources[first : first + self._rows]
            found += self._translate_batch(batch, start)
            advance(len(batch))
        return found

    def _translate_batch(self, sources: Sequence[tuple[int, ...]], start: tuple[int, ...]) -> list[Lead]:
        self.start(sources)
        running = rows = np.arange(len(sources))
        token_ids = np.full(len(sources), self.bos_id)
        for forced in start:
            self._score(token_ids)
            token_ids = np.full(len(sources), forced)
        targets: list[list[int]] = [[] for _ in sources]
        scores: list[list[float]] = [[] for _ in sources]
        leads = np.full(len(sources), np.inf)
        for _ in range(len(start), self.max_target_tokens):
            best_scores, best_ids = self._score(token_ids, best_count=2).best(rows, 2)
            token_ids = np.ascontiguousarray(best_ids[:, 0])
            for row in running.tolist():
                scores[row].append(float(best_scores[row, 0]))
                leads[row] = min(leads[row], best_scores[row, 0] - best_scores[row, 1])
            running = running[token_ids[running] != self._eos_id]
            for row in running.tolist():
                targets[row].append(int(token_ids[row]))
            if not len(running):
                break
        # cumsum adds in the engine's order; another order would round differently.
        sums = [float(np.cumsum(own)[-1]) for own in scores]
        answers = [Answer(tuple(ids), total, tuple(own)) for ids, total, own in zip(targets, sums, scores, strict=True)]
        return [Lead(answer, float(lead)) for answer, lead in zip(answers, leads, strict=True)]
