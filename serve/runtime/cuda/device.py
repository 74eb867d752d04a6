"""Memory of a device, and runs of sessions upon it: nothing that is bound is copied but what a run is told to fetch.

A device is a GPU or, so that everything here is tested everywhere, the CPU. Memory is taken by a graph that makes
zeros, so that it comes from the session's bounded arena. Knows no model.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.runtime.cuda.capture_gate import GATE
from serve.runtime.onnx_runtime import value_on

DeviceKind = Literal["cpu", "cuda"]
# The numbers of ONNX's element types (TensorProto.DataType), and their sizes in bytes.
FLOAT, INT32, INT64, FLOAT16 = 1, 6, 7, 10
ELEMENT_BYTES = {FLOAT: 4, INT32: 4, INT64: 8, FLOAT16: 2}
ELEMENTS = {np.dtype(np.float32): FLOAT, np.dtype(np.int32): INT32, np.dtype(np.int64): INT64}
# What a session takes: a tensor that lies on the device, or an array that is copied there.
Given = Mapping[str, "View | NDArray[Any]"]
# Memory is counted and copied in words.
WORD_BYTES = 4


class View(NamedTuple):
    """A tensor in memory of a device.

    Attributes:
        pointer: address of its first element.
        element: type of its elements, as ONNX numbers them.
        shape: of the tensor, without gaps.
    """

    pointer: int
    element: int
    shape: tuple[int, ...]

    @property
    def words(self) -> int:
        """Its size in words."""
        return math.prod(self.shape) * ELEMENT_BYTES[self.element] // WORD_BYTES

    def first(self, rows: int) -> "View":
        """Returns its first rows."""
        return self._replace(shape=(rows, *self.shape[1:]))


class Memory:
    """A piece of a device's memory, held as long as this object."""

    def __init__(self, value: Any) -> None:
        """Holds an OrtValue."""
        self._value = value
        self._pointer: int = value.data_ptr()

    def view(self, element: int, shape: tuple[int, ...], first_word: int = 0) -> View:
        """Returns a part of it as a tensor."""
        return View(self._pointer + first_word * WORD_BYTES, element, shape)

    def write(self, array: NDArray[Any]) -> None:
        """Overwrites all of it with an array of the same type and size; the address stays."""
        with GATE.use():
            self._value.update_inplace(array)


class Device:
    """Where sessions run and values live.

    Attributes:
        kind: `cpu` or `cuda`.
        number: which of its kind, from 0.
    """

    def __init__(self, kind: DeviceKind, number: int = 0) -> None:
        self.kind = kind
        self.number = number

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}"

    def hold(self, array: NDArray[Any]) -> tuple[Memory, View]:
        """Returns memory with an array in it, and all of it as a tensor."""
        with GATE.use():
            memory = Memory(value_on(self.kind, self.number, array.copy()))
        return memory, memory.view(ELEMENTS[array.dtype], array.shape)

    def allocate(self, session: Any, words: int) -> Memory:
        """Returns so many words of zeros: garbage could be NaN, which leaks through a product with zero.

        Args:
            session: of the graph that makes zeros.
            words: how many; at least one.

        Raises:
            Exception: whatever ONNX Runtime raises if there is not so much memory.
        """
        binding = session.io_binding()
        with GATE.use():
            binding.bind_cpu_input("words", np.array([words]))
            binding.bind_output("zeros", self.kind, self.number)
            session.run_with_iobinding(binding)
        return Memory(binding.get_outputs()[0])

    def bind(self, session: Any, inputs: Given, outputs: Mapping[str, View]) -> Any:
        """Returns a binding of a session.

        Args:
            session: to be run with it.
            inputs: tensors of this device, and arrays in this machine's memory, which are copied at once.
            outputs: tensors of this device.
        """
        binding = session.io_binding()
        for name, value in inputs.items():
            if isinstance(value, View):
                binding.bind_input(name, self.kind, self.number, value.element, value.shape, value.pointer)
            else:
                binding.bind_cpu_input(name, value)
        for name, view in outputs.items():
            binding.bind_output(name, self.kind, self.number, view.element, view.shape, view.pointer)
        return binding

    def run(
        self,
        session: Any,
        inputs: Given,
        outputs: Mapping[str, View],
        fetched: Sequence[str] = (),
    ) -> list[NDArray[Any]]:
        """Runs a session and returns the outputs that are to be fetched, as arrays in this machine's memory."""
        with GATE.use():
            binding = self.bind(session, inputs, outputs)
            for name in fetched:
                binding.bind_output(name, "cpu")
            session.run_with_iobinding(binding)
        return [value.numpy() for value in binding.get_outputs()[len(outputs) :]]
