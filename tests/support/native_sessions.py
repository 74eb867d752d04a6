"""Sessions of the native operators, with caches in memory that they change in place or copy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from dragoman.serve.runtime.onnx_runtime import session_options
from tests.support.native_graphs import cache_names, choose_graph, encode_graph, step_graph
from tests.support.native_reference import Transformer, cache_arrays, target_arrays

Array = NDArray[Any]
STEP_RESULTS = ("logits", "log_sums", "best_scores", "best_ids", "alignments")


def open_graph(graph: bytes, threads: int = 1) -> Any:
    return onnxruntime.InferenceSession(graph, session_options(threads), providers=["CPUExecutionProvider"])


@dataclass
class StepResult:
    """Outputs of a step of R rows, M of them scored."""

    logits: Array  # [M, V]
    log_sums: Array  # [R]
    best_scores: Array  # [R, C]
    best_ids: Array  # [R, C]
    alignments: Array  # [R or 0, A, capacity]

    def __getitem__(self, row: int) -> list[bytes]:
        """Returns the bits of one row of a step whose rows are all scored."""
        parts = (self.logits, self.log_sums, self.best_scores, self.best_ids, self.alignments)
        return [part[row].tobytes() for part in parts if len(part)]


class NativeModel:
    """A model's sessions and its caches."""

    def __init__(
        self,
        model: Transformer,
        *,
        slots: int = 8,
        capacity: int = 32,
        threads: int = 1,
        in_place: bool = False,
        shortlists: bool = False,
    ) -> None:
        self.shape = model.shape
        self.in_place = in_place
        self.shortlists = shortlists
        self.encoder = open_graph(encode_graph(model), threads)
        self.decoder = open_graph(step_graph(model, shortlists=int(shortlists)), threads)
        self.source = cache_arrays(model.shape, slots, capacity)
        self.target = target_arrays(model.shape, slots, capacity)

    def _feeds(self, side: str, arrays: list[Array]) -> dict[str, Array]:
        return dict(zip(cache_names(self.shape, side), arrays, strict=True))

    def encode(self, sources: list[list[int]], slots: list[int]) -> None:
        feeds: dict[str, Array] = {
            "source_ids": np.concatenate([np.array(ids, np.int64) for ids in sources]),
            "source_lengths": np.array([len(ids) for ids in sources], np.int32),
            "source_slots": np.array(slots, np.int32),
        }
        caches = self._feeds("source", self.source)
        if self.in_place:
            run_in_place(self.encoder, feeds, caches, {})
        else:
            self.source = self.encoder.run(None, feeds | caches)

    def feeds(
        self,
        token_ids: list[int],
        positions: list[int],
        target_slots: list[int],
        source_slots: list[int],
        source_lengths: list[int],
        *,
        best_count: int = 3,
        aligned: bool = False,
        candidates: Sequence[Sequence[int]] | None = None,
    ) -> dict[str, Array]:
        """Returns the inputs of a step, caches excluded; all rows are scored, and each may have candidates."""
        lists = {
            "positions": positions,
            "target_slots": target_slots,
            "source_slots": source_slots,
            "source_lengths": source_lengths,
            "scored_rows": list(range(len(token_ids))),
            "best_count": [best_count],
            "aligned": [int(aligned)],
        }
        feeds = {"token_ids": np.array(token_ids, np.int64)} | {
            name: np.array(values, np.int32) for name, values in lists.items()
        }
        if self.shortlists:
            ends = np.cumsum([len(ids) for ids in candidates or ()], dtype=np.int32)
            ranges = np.stack([np.concatenate([[0], ends[:-1]]), ends], 1) if candidates else np.zeros((0, 2))
            feeds["candidate_ids"] = np.concatenate([np.array(ids, np.int32) for ids in candidates or [()]])
            feeds["candidate_ranges"] = ranges.astype(np.int32)
        return feeds

    def step(self, *arguments: Any, **options: Any) -> StepResult:
        """Computes one step with the arguments of `feeds`."""
        feeds = self.feeds(*arguments, **options)
        target, source = self._feeds("target", self.target), self._feeds("source", self.source)
        if self.in_place:
            results = self._results(feeds)
            run_in_place(self.decoder, feeds | source, target, results)
            return StepResult(*results.values())
        results_and_cache = self.decoder.run(None, feeds | target | source)
        self.target = results_and_cache[5:]
        return StepResult(*results_and_cache[:5])

    def _results(self, feeds: dict[str, Array]) -> dict[str, Array]:
        rows, count = len(feeds["token_ids"]), int(feeds["best_count"][0])
        heads = (rows * int(feeds["aligned"][0]), len(self.shape.alignment_heads), self.source[0].shape[2] * 16)
        shapes = [(rows, self.shape.vocabulary), (rows,), (rows, count), (rows, count), heads]
        types = [np.float32, np.float32, np.float32, np.int64, np.float32]
        return {name: np.full(shape, 7, kind) for name, shape, kind in zip(STEP_RESULTS, shapes, types, strict=True)}


def run_in_place(session: Any, feeds: dict[str, Array], caches: dict[str, Array], results: dict[str, Array]) -> None:
    """Runs a session whose caches are inputs and outputs in the same memory."""
    binding = session.io_binding()

    def bind(call: Any, name: str, array: Array) -> None:
        call(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)

    for name, array in (feeds | caches).items():
        bind(binding.bind_input, name, array)
    for name, array in (results | {f"{name}_out": array for name, array in caches.items()}).items():
        bind(binding.bind_output, name, array)
    session.run_with_iobinding(binding)


def choose_session() -> Any:
    return open_graph(choose_graph())
