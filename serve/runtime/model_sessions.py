"""A bundle's graphs, opened where they are computed: what verification and benchmarks need of them, CPU or GPU.

`Sessions` and `DeviceSessions` are both of this form. Knows neither settings nor services.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from serve.bundle.bundle import Bundle
from serve.bundle.manifest import Manifest
from serve.runtime.cpu import Sessions
from serve.runtime.cuda.device import Device
from serve.runtime.cuda.device_sessions import DeviceSessions
from serve.runtime.device_choice import DeviceChoice
from serve.runtime.model import Model
from serve.runtime.placement import choose_device


class DirectModel(Model, Protocol):
    """An engine's model whose logits can be had as they are."""

    def decode_step(
        self,
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
        *,
        held: int = 0,
    ) -> NDArray[np.float32]:
        """Computes a step as `step` does; returns all logits, float32 [R, V], valid until the next call."""


class ModelSessions(Protocol):
    """The opened graphs of a bundle."""

    @property
    def manifest(self) -> Manifest:
        """Of the bundle."""

    def runtime(self, slots: int, ahead: int = 0) -> DirectModel:
        """Returns a model with a state of its own.

        Args:
            slots: the most rows of a step.
            ahead: rows behind those, which have a state but take part in no step.
        """


def open_sessions(bundle: Bundle, choice: DeviceChoice, *, aligned: bool = False) -> ModelSessions:
    """Opens the graphs of a bundle on the CPU, or on the first GPU.

    Args:
        bundle: a checked bundle.
        choice: where.
        aligned: whether steps are to give alignments, which the bundle must have been exported for.

    Raises:
        BundleError: if they cannot be computed there, or ONNX Runtime refuses one.
    """
    if choose_device(choice, bundle) == "cuda":
        return DeviceSessions.load(bundle, Device("cuda"), aligned=aligned)
    return Sessions.load(bundle, threads=1, aligned=aligned)
