"""Memory of a device, and runs of sessions upon it: nothing that is bound is copied but what a run is told to fetch.

A device is a GPU or, so that everything here is tested everywhere, the CPU. Memory is taken by a graph that makes
zeros, so that it comes from the session's bounded arena. Knows no model.

Who may use CUDA while a CUDA graph is captured: nobody else in the process.

ONNX Runtime captures in CUDA's global mode, in which a call from any thread that allocates or copies spoils the
capture. Engines of several GPUs capture while they get ready, and those of a new model while another one serves. So a
capture is alone, for the few milliseconds that it takes, and everything else runs side by side.

What a device does beside running the model: chooses tokens and moves rows about.

Each tool is a graph without weights; `export.graphs.device_graphs` says what they compute and writes their files.
"""

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from serve.runtime.onnx_runtime import Provider, open_session, session_options, value_on


class CaptureGate:
    """Lets many users through at a time, or one capture."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._users = 0
        self._captures = 0  # that wait or go on: nobody else gets in meanwhile, or they would wait for ever

    @contextmanager
    def use(self) -> Iterator[None]:
        """Keeps captures out while the block runs; not to be nested."""
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
        """Keeps everybody else out while the block runs."""
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


# Of the process, as CUDA's mode is.
CUDA_GRAPH_LOCK = CaptureGate()


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
        with CUDA_GRAPH_LOCK.use():
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
        with CUDA_GRAPH_LOCK.use():
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
        with CUDA_GRAPH_LOCK.use():
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
        with CUDA_GRAPH_LOCK.use():
            binding = self.bind(session, inputs, outputs)
            for name in fetched:
                binding.bind_output(name, "cpu")
            session.run_with_iobinding(binding)
        return [value.numpy() for value in binding.get_outputs()[len(outputs) :]]


FOLDER = Path(__file__).parent / "device_graphs"


class DeviceTools(NamedTuple):
    """The sessions of the tools, all on one device."""

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
        """Opens the graphs.

        Args:
            device: where they run.
            provider: what computes them there.

        Raises:
            BundleError: if ONNX Runtime refuses one.
        """
        options = session_options(threads=1)
        names = cls._fields[1:]
        return cls(device, *(open_session(FOLDER / f"{name}.onnx", options, [provider]) for name in names))

    def allocate(self, words: int) -> Memory:
        """Returns so many words of zeros."""
        return self.device.allocate(self.zeros, words)

    def choose_tokens(
        self, logits: View, last_id: NDArray[np.int64], log_probabilities: View
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Makes log-probabilities of logits, both [R, V], and returns the best token of each row and its own.

        Returns:
            token ids, int64 [R], and natural log-probabilities, float32 [R].
        """
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
        """Returns the best scores of each row, float32 [R, count], and their tokens, int64 [R, count]."""
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
        """Writes rows of a source, [N, W] words, over rows of a target, [P, W] words.

        Args:
            source: where rows are read; it may be the target, if no row is both.
            target: where they are written.
            source_rows: int64 [M].
            target_rows: int64 [M]; where one occurs twice, so does its source.
        """
        rows = {"source_rows": source_rows, "target_rows": target_rows[:, np.newaxis]}
        self.device.run(self.copy_rows, {"source": source, "target": target, **rows}, {"copied": target})

    def fetch(self, source: View, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns rows of a matrix, float32 [M, W], in this machine's memory."""
        inputs: Given = {"source": source, "source_rows": rows}
        values: NDArray[np.float32]
        (values,) = self.device.run(self.gather_rows, inputs, {}, ("rows",))
        return values

    def change_capacity(self, source: View, target: View) -> None:
        """Copies positions, from [R, H, C, W] to [R, H, P, W] words, as many as there are on both sides.

        What stands behind them is a copy of the last position: finite, if that is.
        """
        positions = np.minimum(np.arange(target.shape[2]), source.shape[2] - 1)
        self.device.run(self.resize, {"source": source, "positions": positions}, {"resized": target})


def as_matrix(view: View, rows: int) -> View:
    """Returns memory as so many rows of words."""
    return View(view.pointer, FLOAT, (rows, view.words // rows))
