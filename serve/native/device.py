"""The C interface of models on devices (serve/native/src/cuda/api.cpp).

The loop runs their engines. A model of one engine may also be stepped from Python.
"""

import ctypes
from ctypes import POINTER, Structure, byref, c_char_p, c_float, c_int64, c_void_p
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.native.loop import LoopError, LoopLibrary, LoopModel, Tensors


class DeviceMemoryError(LoopError):
    """A device has too little memory."""


class DeviceConfig(Structure):
    """What a model needs; serve/native/src/cuda/config.hpp documents the fields."""

    _fields_ = (
        *((name, c_char_p) for name in ("encoder", "decoder", "choose", "driver")),
        *((name, c_int64) for name in ("gpus", "engines", "memory_bytes", "captured", "ahead")),
        *((name, c_int64) for name in ("slots", "vocabulary", "begin_id", "pad_id")),
        *((name, c_int64) for name in ("max_source_tokens", "max_target_tokens", "alignment_heads", "element")),
        *((name, c_int64) for name in ("least_capacity", "shrink_steps", "encoder_rows")),
        ("source_states", Tensors),
        ("target_states", Tensors),
    )


class Choices(Structure):
    """The best tokens of rows; serve/native/src/loop/step_model.hpp documents the fields."""

    _fields_ = (("log_sums", POINTER(c_float)), ("best_scores", POINTER(c_float)), ("best_ids", POINTER(c_int64)))


class StepRecord(Structure):
    """The arrays of a step and of its results, which are valid until the next one."""

    _fields_ = (
        *((name, c_void_p) for name in ("token_ids", "positions", "rows", "source_lengths", "scored_rows")),
        *((name, c_int64) for name in ("row_count", "scored_count", "best_count", "aligned")),
        ("logits", POINTER(c_float)),
        ("choices", Choices),
        ("alignments", POINTER(c_float)),
    )


class DeviceModel(LoopModel):
    """The sessions and the memory of all engines. Arrays are contiguous: token ids int64, other integers int32."""

    def __init__(self, library: LoopLibrary, config: DeviceConfig) -> None:
        """Opens the sessions and allocates the memory, while other threads run.

        Raises DeviceMemoryError if a device has too little memory, LoopError if it fails or a graph is rejected.
        """
        self._library, handle = library, c_void_p()
        if not library.checked(library.slow.dragoman_device_open(byref(config), byref(handle)), library.slow):
            message: bytes = library.slow.dragoman_loop_error()
            raise DeviceMemoryError(message.decode(errors="replace"))
        self.handle = handle

    def _call(self, name: str, *arguments: Any) -> None:
        slow = self._library.slow
        self._library.checked(getattr(slow, f"dragoman_device_{name}")(self.handle, *arguments), slow)

    @property
    def source_capacity(self) -> int:
        """Source tokens that each row has room for now."""
        return int(self._library.slow.dragoman_device_source_capacity(self.handle))

    def prepare(self) -> None:
        """Runs a step of every size."""
        self._call("prepare")

    def fill(self, byte: int) -> None:
        """Overwrites all states with a byte, for tests."""
        self._call("fill", c_int64(byte))

    def encode(
        self, ids: NDArray[np.int64], lengths: NDArray[np.int32], rows: NDArray[np.int32], counts: NDArray[np.int32]
    ) -> None:
        """Encodes sources without padding; `rows` are those of all sources, `counts` their number of each."""
        self._call("encode", ids.ctypes, lengths.ctypes, len(lengths), rows.ctypes, counts.ctypes)

    def step(self, record: StepRecord) -> None:
        """Computes a step, and sets its results in the record."""
        self._call("step", byref(record))

    def choose(self, rows: int, count: int) -> Choices:
        """Returns the best tokens of the first rows of the logits of the last step."""
        choices = Choices()
        self._call("choose", rows, count, ctypes.addressof(choices))
        return choices

    def branch(self, source: int, target: int, positions: int) -> None:
        """Copies the first tokens of a row over those of another one of the same source."""
        self._call("branch", source, target, positions)
