"""The cross-attention of any layer and head, by forced decoding in a session of its own, apart from the engines."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.bundle.bundle import Bundle, BundleError
from dragoman.serve.runtime.model import Model


class HeadAttention:
    """Reads the attention of all decoder layers and heads of native graphs. Not thread-safe."""

    def __init__(self, bundle: Bundle) -> None:
        """Opens nothing: the first reading opens the graphs; raises BundleError if the graphs are not native."""
        cache = bundle.manifest.cache
        if cache is None:
            raise BundleError(f"{bundle.folder}: expected native graphs")
        self.layers, self.heads = cache.layers, cache.heads
        self._bundle = bundle

    @cached_property
    def _runtime(self) -> Model:
        # Processes that serve fake models do without ONNX Runtime.
        from dragoman.serve.runtime.native import NativeRuntime, NativeSessions  # noqa: PLC0415

        sessions = NativeSessions.load(self._bundle, threads=1, aligned=True)
        return NativeRuntime(sessions, slots=1, every_head=True)

    def read(
        self, source_ids: Sequence[int], target_ids: Sequence[int], layer: int | None, head: int | None
    ) -> NDArray[np.float32]:
        """Returns the attention of T target tokens to S source tokens, float32 [T, S].

        The source has prefix and suffix, the forced translation no end token. Without a layer or a head, it is the mean
        over all. Raises BundleError if ONNX Runtime rejects a graph.
        """
        runtime, row, length = self._runtime, np.zeros(1, np.int64), len(source_ids)
        lengths = np.array([length], np.int32)
        layers = range(self.layers) if layer is None else [layer]
        heads = range(self.heads) if head is None else [head]
        weights = np.empty((len(target_ids), length), np.float32)
        runtime.encode(np.array([source_ids], np.int64), lengths, [[0]])
        tokens = (self._bundle.manifest.bos_id, *target_ids)
        for position in range(len(target_ids)):
            token = np.array([tokens[position]], np.int64)
            runtime.step(row, token, np.array([position], np.int32), lengths, aligned=True)
            every = runtime.alignments[0, :, :length].reshape(self.layers, self.heads, length)
            weights[position] = every[np.ix_(layers, heads)].mean(axis=(0, 1))
        return weights
