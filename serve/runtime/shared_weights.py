"""The weights that the graphs of a bundle have in common, mapped into memory once.

Each session would map them for itself. Called by `serve.runtime.cpu`.
"""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from serve.bundle.bundle import WEIGHTS_FILE, Bundle, BundleError
from serve.runtime.onnx_runtime import value_on


@dataclass(frozen=True, slots=True)
class SharedWeights:
    """What encoder and decoder both read, as OrtValues; sessions do not keep it, so that it has to outlive them.

    Attributes:
        encoder: by the names of the encoder's initializers.
        decoder: the same by those of the decoder's.
    """

    encoder: dict[str, Any]
    decoder: dict[str, Any]

    @classmethod
    def of(cls, bundle: Bundle) -> Self:
        """Maps the weights that the manifest lists as shared.

        Only those pages take memory that somebody reads: of embeddings, the rows of tokens that occur.

        Raises:
            BundleError: if a weight does not lie in the file of weights.
        """
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
            shared.encoder[weight.encoder_name] = shared.decoder[weight.decoder_name] = value_on("cpu", 0, array)
        return shared
