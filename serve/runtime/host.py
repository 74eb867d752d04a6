"""What runs on the CPU have in common: sessions that all engines share, and one runtime with its own state per engine.

`dragoman.serve.runtime.native` runs native graphs, `dragoman.serve.runtime.cpu` graphs with states. Weights that
several graphs read are mapped into memory once.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.bundle.bundle import WEIGHTS_FILE, Bundle, BundleError
from dragoman.serve.bundle.manifest import Manifest
from dragoman.serve.runtime.model import Model
from dragoman.serve.runtime.onnx_runtime import open_session, shared_options, value_of

# The activations of more source tokens do not fit into CPU caches: in one run 2,560 tokens took 15 % longer, and memory
# for all of them.
ENCODED_TOKENS = 256


@dataclass(frozen=True, slots=True)
class SharedWeights:
    """OrtValues that encoder and decoder both read, by initializer name. They must outlive the sessions."""

    encoder: dict[str, Any]
    decoder: dict[str, Any]

    @classmethod
    def of(cls, bundle: Bundle) -> Self:
        """Maps shared weights, of which only read pages take memory; raises BundleError if one exceeds its file."""
        shared = cls({}, {})
        path = bundle.folder / WEIGHTS_FILE
        for weight in bundle.manifest.shared_weights:
            size_bytes = np.dtype(weight.type).itemsize * math.prod(weight.shape)
            expected = path.stat().st_size - size_bytes
            if weight.offset_bytes > expected:
                raise BundleError(
                    f"{path}: shared_weights: {weight.encoder_name}: offset_bytes: {weight.offset_bytes}: "
                    f"expected at most {expected}"
                )
            array = np.memmap(path, weight.type, "r", weight.offset_bytes, weight.shape)
            shared.encoder[weight.encoder_name] = shared.decoder[weight.decoder_name] = value_of(array)
        return shared


@dataclass(frozen=True, slots=True)
class HostSessions(ABC):
    """The sessions of a bundle. Running them is thread-safe; `aligned`: whether steps can return alignments."""

    manifest: Manifest
    weights: SharedWeights
    aligned: bool
    encoder: Any
    decoder: Any

    @classmethod
    def load(cls, bundle: Bundle, threads: int, *, aligned: bool = False) -> Self:
        """Opens the graphs, as `load_sessions` does; raises BundleError if they need a GPU or one is rejected."""
        weights = SharedWeights.of(bundle)
        return cls(
            bundle.manifest,
            weights,
            aligned,
            open_session(bundle.encoder_path, shared_options(threads, weights.encoder)),
            open_session(bundle.decoder_path, shared_options(threads, weights.decoder)),
            **cls._open_others(bundle, threads),
        )

    @classmethod
    @abstractmethod
    def _open_others(cls, bundle: Bundle, threads: int) -> dict[str, Any]:
        """Returns further sessions by field."""

    @abstractmethod
    def runtime(self, slots: int) -> Model:
        """Returns a runtime with its own state of `slots` rows."""


class HostRuntime(ABC):
    """What one engine computes with: the shared sessions and its own state. Not thread-safe."""

    def __init__(self, slots: int) -> None:
        self.slots = slots

    def encode(
        self, source_ids: NDArray[np.int64], source_lengths: NDArray[np.int32], rows: Sequence[Sequence[int]]
    ) -> None:
        """Encodes B sources, a few at a time; see `Model.encode`."""
        few = max(1, ENCODED_TOKENS // source_ids.shape[1])
        for first in range(0, len(rows), few):
            part = slice(first, first + few)
            self._encode(source_ids[part], source_lengths[part], rows[part])

    @abstractmethod
    def _encode(
        self, source_ids: NDArray[np.int64], source_lengths: NDArray[np.int32], rows: Sequence[Sequence[int]]
    ) -> None:
        """Encodes sources in one run."""
