"""Memory of native graphs on the CPU: weights that several graphs read are mapped once; caches fill as they grow."""

import math
import mmap
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dragoman.serve.bundle.bundle import WEIGHTS_FILE, Bundle, BundleError
from dragoman.serve.runtime.onnx_runtime import value_of


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


def lazy_zeros(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Returns zeros; pages take memory when they are first written."""
    kind, size = np.dtype(dtype), math.prod(shape)
    pages = mmap.mmap(-1, max(size, 1) * kind.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # NumPy requests huge pages: one filled position would take 2 MB, more than the whole capacity of its head.
    pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, kind, size).reshape(shape)
