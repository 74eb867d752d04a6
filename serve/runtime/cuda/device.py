"""Device memory, runs of sessions on a device, and the lock around CUDA graph capture.

A device is a GPU or, for tests, the CPU. Bound tensors stay on the device; a run copies only the outputs to fetch. A
graph of zeros allocates memory, so that it comes from the session's bounded arena.

ONNX Runtime captures in CUDA's global mode: a call from any thread that allocates or copies spoils the capture.
Therefore a capture excludes all other use of CUDA in the process for a few milliseconds.

`DeviceTools` chooses tokens and moves rows with weightless graphs, which `dragoman.export.graphs.weightless` writes.
"""

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.runtime.onnx_runtime import Provider, open_session, session_options, value_on


class CaptureGate:
    """A lock with many concurrent users or one capture."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._users = 0
        self._captures = 0  # waiting or running; new users wait while there is one, so that a capture cannot starve

    @contextmanager
    def use(self) -> Iterator[None]:
        """Blocks captures during the `with` block. Not reentrant."""
        with self._condition:
            self._condition.wait_for(lambda: not self._captures)
            self._users += 1
        try:
            yield
        finally:
            with self._condition:
                self._users -= 1
                self._condition.notify_all()

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Blocks users and other captures during the `with` block."""
        with self._condition:
            self._captures += 1
            self._condition.wait_for(lambda: not self._users)
            self._users += 1
        try:
            yield
        finally:
            with self._condition:
                self._users -= 1
                self._captures -= 1
                self._condition.notify_all()


# One per process, because CUDA's capture mode is per process.
CUDA_GRAPH_LOCK = CaptureGate()


DeviceKind = Literal["cpu", "cuda"]
# Element types as ONNX numbers them (TensorProto.DataType), and their sizes in bytes.
FLOAT, INT32, INT64, FLOAT16 = 1, 6, 7, 10
ELEMENT_BYTES = {FLOAT: 4, INT32: 4, INT64: 8, FLOAT16: 2}
ELEMENTS = {np.dtype(np.float32): FLOAT, np.dtype(np.int32): INT32, np.dtype(np.int64): INT64}
# Inputs of a session: a tensor on the device, or an array that the run copies there.
Given = Mapping[str, "View | NDArray[Any]"]
# The unit of memory sizes and copies.
WORD_BYTES = 4


class View(NamedTuple):
    """A tensor in device memory without gaps: its address, ONNX element type and shape."""

    pointer: int
    element: int
    shape: tuple[int, ...]

    @property
    def words(self) -> int:
        """Size in words."""
        return math.prod(self.shape) * ELEMENT_BYTES[self.element] // WORD_BYTES

    def first(self, rows: int) -> "View":
        """Returns its first rows."""
        return self._replace(shape=(rows, *self.shape[1:]))


class Memory:
    """A piece of device memory, freed with this object."""

    def __init__(self, value: Any) -> None:
        """Takes ownership of an OrtValue."""
        self._value = value
        self._pointer: int = value.data_ptr()

    def view(self, element: int, shape: tuple[int, ...], first_word: int = 0) -> View:
        """Returns a part of the memory as a tensor."""
        return View(self._pointer + first_word * WORD_BYTES, element, shape)

    def write(self, array: NDArray[Any]) -> None:
        """Overwrites the memory with an array of the same type and size; the address stays."""
        with CUDA_GRAPH_LOCK.use():
            self._value.update_inplace(array)


class Device:
    """Where sessions run and values live: the kind of device and its number from 0."""

    def __init__(self, kind: DeviceKind, number: int = 0) -> None:
        self.kind = kind
        self.number = number

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}"

    def hold(self, array: NDArray[Any]) -> tuple[Memory, View]:
        """Copies an array to the device; returns the memory and a view of all of it."""
        with CUDA_GRAPH_LOCK.use():
            memory = Memory(value_on(self.kind, self.number, array.copy()))
        return memory, memory.view(ELEMENTS[array.dtype], array.shape)

    def allocate(self, session: Any, words: int) -> Memory:
        """Returns zeroed memory, at least one word: garbage could hold NaN, and NaN times zero is NaN.

        Raises an Exception of ONNX Runtime if the device is out of memory.
        """
        binding = session.io_binding()
        with CUDA_GRAPH_LOCK.use():
            binding.bind_cpu_input("words", np.array([words]))
            binding.bind_output("zeros", self.kind, self.number)
            session.run_with_iobinding(binding)
        return Memory(binding.get_outputs()[0])

    def bind(self, session: Any, inputs: Given, outputs: Mapping[str, View]) -> Any:
        """Returns a binding of a session. Inputs that are host arrays are copied at once."""
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
        self, session: Any, inputs: Given, outputs: Mapping[str, View], fetched: Sequence[str] = ()
    ) -> list[NDArray[Any]]:
        """Runs a session; returns the outputs named in `fetched` as host arrays."""
        with CUDA_GRAPH_LOCK.use():
            binding = self.bind(session, inputs, outputs)
            for name in fetched:
                binding.bind_output(name, "cpu")
            session.run_with_iobinding(binding)
        return [value.numpy() for value in binding.get_outputs()[len(outputs) :]]


FOLDER = Path(__file__).parent / "device_graphs"


class DeviceTools(NamedTuple):
    """The sessions of the tool graphs, all on one device."""

    device: Device
    zeros: Any
    choose: Any
    token_scores: Any
    topk: Any
    copy_rows: Any
    gather_rows: Any
    resize: Any

    @classmethod
    def load(cls, device: Device, provider: Provider) -> Self:
        """Opens the graphs; raises BundleError if ONNX Runtime rejects one."""
        options = session_options(threads=1)
        names = cls._fields[1:]
        return cls(device, *(open_session(FOLDER / f"{name}.onnx", options, [provider]) for name in names))

    def allocate(self, words: int) -> Memory:
        """Returns zeroed memory."""
        return self.device.allocate(self.zeros, words)

    def choose_tokens(
        self, logits: View, last_id: NDArray[np.int64], log_probabilities: View
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Writes log-probabilities [R, V]; returns the best token ids, int64 [R], and their values, float32 [R]."""
        token_ids, scores = self.device.run(
            self.choose,
            {"logits": logits, "last_id": last_id},
            {"log_probabilities": log_probabilities},
            ("token_ids", "token_scores"),
        )
        return token_ids[:, 0], scores[:, 0]

    def scores_of(self, log_probabilities: View, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns the log-probability of one token of each row, float32 [R]."""
        inputs: Given = {"log_probabilities": log_probabilities, "token_ids": token_ids[:, np.newaxis]}
        (scores,) = self.device.run(self.token_scores, inputs, {}, ("token_scores",))
        column: NDArray[np.float32] = scores[:, 0]
        return column

    def best(self, log_probabilities: View, count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns the best scores of each row, float32 [R, count], and their token ids, int64 [R, count]."""
        inputs: Given = {"scores": log_probabilities, "count": np.array([count])}
        scores, token_ids = self.device.run(self.topk, inputs, {}, ("best_scores", "token_ids"))
        return scores, token_ids

    def copy(
        self,
        source: View | NDArray[np.float32],
        target: View,
        source_rows: NDArray[np.int64],
        target_rows: NDArray[np.int64],
    ) -> None:
        """Copies rows, int64 [M] each, of a source, [N, W] words, over rows of a target, [P, W] words.

        Source and target may be the same if no row is both read and written. A repeated target row must repeat its
        source.
        """
        rows = {"source_rows": source_rows, "target_rows": target_rows[:, np.newaxis]}
        self.device.run(self.copy_rows, {"source": source, "target": target, **rows}, {"copied": target})

    def fetch(self, source: View, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns rows of a matrix as a host array, float32 [M, W]."""
        inputs: Given = {"source": source, "source_rows": rows}
        values: NDArray[np.float32]
        (values,) = self.device.run(self.gather_rows, inputs, {}, ("rows",))
        return values

    def change_capacity(self, source: View, target: View) -> None:
        """Copies the positions that both capacities have, from [R, H, C, W] to [R, H, P, W] words.

        Positions beyond C repeat the last one, which keeps them finite.
        """
        positions = np.minimum(np.arange(target.shape[2]), source.shape[2] - 1)
        self.device.run(self.resize, {"source": source, "positions": positions}, {"resized": target})
