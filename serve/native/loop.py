"""The C interface of the native loop (serve/native/src/loop/api.cpp): decoding without the interpreter's lock.

Short calls keep the interpreter's lock: releasing it could cost more than they take. No thread of the loop ever takes
it.
"""

import ctypes
import os
from array import array
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_double, c_int32, c_int64, c_uint8, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dragoman.serve.native.library import library_path

VERSION = 8


class LoopError(Exception):
    """The loop rejected a call."""


class _Bounds(ctypes.Structure):
    _fields_ = (("count", c_uint64), ("values", c_double * 32))

    @classmethod
    def of(cls, bounds: Sequence[float]) -> "_Bounds":
        """Returns at most 32 bounds."""
        return cls(len(bounds), (c_double * 32)(*bounds))


class _Config(ctypes.Structure):
    _fields_ = (
        ("engine_rows", c_int64),
        ("engines", c_int64),
        ("prefill_token_budget", c_int64),
        ("running_token_budget", c_int64),
        ("begin_id", c_int64),
        ("end_id", c_int64),
        ("vocabulary", c_int64),
        ("max_source_tokens", c_int64),
        ("max_target_tokens", c_int64),
        ("aligned", c_int64),
        ("descriptor", c_int64),
        ("seconds_bounds", _Bounds),
        ("sequence_bounds", _Bounds),
        ("shortlist", c_char_p),
    )


class _Load(ctypes.Structure):
    _fields_ = (
        ("waiting", c_int64),
        ("waiting_rows", c_int64),
        ("running", c_int64),
        ("running_rows", c_int64),
        ("most_running", c_int64),
    )


class _Health(ctypes.Structure):
    _fields_ = (("step_started_seconds", c_double), ("healthy", c_int64), ("failure_count", c_int64))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p),
        ("type", c_int64),
        ("rank", c_int64),
        ("shape", c_int64 * 8),
        ("offset_bytes", c_uint64),
    )


class Tensors(ctypes.Structure):
    """Tensors in the interface."""

    _fields_ = (("records", POINTER(_Tensor)), ("count", c_uint64))

    @classmethod
    def of(cls, tensors: Sequence["TensorSpec"]) -> "Tensors":
        """Returns the structure, which keeps its records alive."""
        return cls((_Tensor * len(tensors))(*(tensor.structure() for tensor in tensors)), len(tensors))


class _ModelConfig(ctypes.Structure):
    _fields_ = (
        ("encoder", c_char_p),
        ("decoder", c_char_p),
        ("choose", c_char_p),
        ("weights", c_char_p),
        ("encoder_weights", Tensors),
        ("decoder_weights", Tensors),
        ("source_cache", Tensors),
        ("target_cache", Tensors),
        ("threads", c_int64),
        ("vocabulary", c_int64),
        ("alignment_heads", c_int64),
        ("shortlists", c_int64),
    )


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor of the file of weights, or the cache of one slot.

    Attributes:
        name: initializer or input of the graphs.
        type: type of the elements, as ONNX numbers them.
        shape: at most 8 dimensions.
        offset_bytes: start in the file of weights.
    """

    name: str
    type: int
    shape: tuple[int, ...]
    offset_bytes: int = 0

    def structure(self) -> _Tensor:
        """Returns the structure of the interface."""
        shape = (c_int64 * 8)(*self.shape)
        return _Tensor(self.name.encode(), self.type, len(self.shape), shape, self.offset_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The graphs of a bundle and what the loop must know of them.

    Attributes:
        encoder_weights, decoder_weights: weights that both graphs read.
        source_cache, target_cache: the tensors of one slot.
        threads: intra-op threads of the sessions.
        vocabulary: number of target tokens.
        alignment_heads: number of heads whose attention the decoder returns.
        shortlists: whether the decoder takes candidates.
    """

    encoder: Path
    decoder: Path
    choose: Path
    weights: Path
    encoder_weights: tuple[TensorSpec, ...]
    decoder_weights: tuple[TensorSpec, ...]
    source_cache: tuple[TensorSpec, ...]
    target_cache: tuple[TensorSpec, ...]
    threads: int
    vocabulary: int
    alignment_heads: int
    shortlists: bool

    def structure(self) -> _ModelConfig:
        """Returns the structure of the interface."""
        lists = self.encoder_weights, self.decoder_weights, self.source_cache, self.target_cache
        return _ModelConfig(
            *(os.fsencode(path) for path in (self.encoder, self.decoder, self.choose, self.weights)),
            *map(Tensors.of, lists),
            self.threads,
            self.vocabulary,
            self.alignment_heads,
            self.shortlists,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopConfig:
    """The limits of the scheduler and of the model.

    Attributes:
        prefill_token_budget: maximum of source tokens that start at once in one engine.
        running_token_budget: maximum of tokens that run together; None: no bound.
        begin_id: the first input of the decoder.
        end_id: the token that ends a translation.
        vocabulary: number of target tokens.
        aligned: whether the model returns alignments.
        continuing_ids: tokens that continue a word.
        seconds_bounds: bounds of the counts of durations.
        sequence_bounds: bounds of the counts of sequences in a run of the model.
        shortlist: the file of the shortlist; None: the model has none.
    """

    engine_rows: int
    engines: int
    prefill_token_budget: int
    running_token_budget: int | None
    begin_id: int
    end_id: int
    vocabulary: int
    max_source_tokens: int
    max_target_tokens: int
    aligned: bool
    continuing_ids: tuple[int, ...]
    seconds_bounds: tuple[float, ...]
    sequence_bounds: tuple[float, ...]
    shortlist: Path | None

    def structure(self, descriptor: int) -> _Config:
        """Returns the structure of the interface; the loop writes to the descriptor if there are records."""
        budget = self.running_token_budget
        return _Config(
            self.engine_rows,
            self.engines,
            self.prefill_token_budget,
            -1 if budget is None else budget,
            self.begin_id,
            self.end_id,
            self.vocabulary,
            self.max_source_tokens,
            self.max_target_tokens,
            self.aligned,
            descriptor,
            _Bounds.of(self.seconds_bounds),
            _Bounds.of(self.sequence_bounds),
            None if self.shortlist is None else os.fsencode(self.shortlist),
        )

    def continuing(self) -> tuple[ctypes.Array[c_int64], int]:
        """Returns the tokens that continue a word as an array of the interface, and their number."""
        count = len(self.continuing_ids)
        return (c_int64 * count).from_buffer(array("q", self.continuing_ids)), count


@dataclass(frozen=True, slots=True)
class PhaseCounts:
    """The runs of the model of one kind.

    Attributes:
        seconds: total duration.
        sequences: total number of sequences.
        by_seconds: runs up to each bound of the durations, and above all.
        by_sequences: runs up to each bound of the sequences, and above all.
    """

    seconds: float
    sequences: int
    by_seconds: tuple[int, ...]
    by_sequences: tuple[int, ...]


class LoopLibrary:
    """The functions of a library that contains the loop."""

    def __init__(self, path: Path) -> None:
        """Opens the library; raises LoopError if the library has another interface, OSError if it cannot be opened."""
        self.quick, self.slow = ctypes.PyDLL(str(path)), ctypes.CDLL(str(path))
        for library in (self.quick, self.slow):
            library.dragoman_loop_error.restype = c_char_p
        self.quick.dragoman_loop_version.restype = c_uint32
        self.quick.dragoman_loop_seconds.restype = c_double
        if (version := self.quick.dragoman_loop_version()) != VERSION:
            raise LoopError(f"{path}: interface {version}, expected {VERSION}")
        self.quick.dragoman_loop_create.argtypes = (POINTER(_Config), c_void_p, c_uint64, POINTER(c_void_p))
        self.quick.dragoman_loop_destroy.argtypes = (c_void_p,)
        self.quick.dragoman_loop_destroy.restype = None
        self.quick.dragoman_loop_submit.argtypes = (c_void_p, c_char_p, c_uint64)
        self.quick.dragoman_loop_cancel.argtypes = (c_void_p, c_uint64)
        self.quick.dragoman_loop_drain.argtypes = (c_void_p,)
        self.quick.dragoman_loop_load.argtypes = (c_void_p, POINTER(_Load))
        self.quick.dragoman_loop_oldest.argtypes = (c_void_p, POINTER(c_double))
        self.quick.dragoman_loop_rows_before.argtypes = (c_void_p, c_double, c_int32, POINTER(c_int64))
        self.quick.dragoman_loop_take.argtypes = (c_void_p, c_int32, POINTER(POINTER(c_uint8)), POINTER(c_uint64))
        self._declare_models()
        self.quick.dragoman_engine_start.argtypes = (c_void_p, c_int64)
        self.slow.dragoman_engine_stop.argtypes = (c_void_p, c_int64, c_double)
        self.quick.dragoman_engine_health.argtypes = (c_void_p, c_int64, POINTER(_Health))
        self.quick.dragoman_engine_counters.argtypes = (c_void_p, c_int64, POINTER(c_uint64), c_uint64)

    def _declare_models(self) -> None:
        """Declares the functions of models in sessions; a library for tests has none."""
        if hasattr(self.slow, "dragoman_model_open"):
            self.slow.dragoman_model_open.argtypes = (POINTER(_ModelConfig), POINTER(c_void_p))
            self.quick.dragoman_loop_add_engine.argtypes = (c_void_p, c_void_p, c_int64)
            self.model_close = self.slow.dragoman_model_close
            self.model_close.argtypes, self.model_close.restype = (c_void_p,), None
            self.slow.dragoman_device_encode.argtypes = (*[c_void_p] * 3, c_int64, *[c_void_p] * 2)
            self.slow.dragoman_device_choose.argtypes = (c_void_p, c_int64, c_int64, c_void_p)
            self.slow.dragoman_device_branch.argtypes = (c_void_p, c_int64, c_int64)
            self.slow.dragoman_device_source_capacity.restype = c_int64

    @property
    def seconds(self) -> float:
        """The time on the clock of the loop, which must be that of `time.monotonic`."""
        return float(self.quick.dragoman_loop_seconds())

    def checked(self, status: int, library: ctypes.CDLL | None = None) -> bool:
        """Returns whether a call returned 0 instead of 1; raises LoopError if the call failed."""
        if status < 0:
            message: bytes = (library or self.quick).dragoman_loop_error()
            raise LoopError(message.decode(errors="replace"))
        return status == 0


@cache
def loop_library() -> LoopLibrary:
    """Returns the library of this installation; raises LoopError if there is none."""
    path = library_path()
    if path is None:
        raise LoopError("there is no native library")
    return LoopLibrary(path)


class LoopModel:
    """The sessions of a bundle, which all engines of a loop share. ONNX Runtime must have registered the library."""

    handle: c_void_p | None = None

    def __init__(self, library: LoopLibrary, config: ModelConfig) -> None:
        """Opens the sessions, while other threads run; raises LoopError if ONNX Runtime rejects a graph."""
        self._library, handle = library, c_void_p()
        library.checked(library.slow.dragoman_model_open(byref(config.structure()), byref(handle)), library.slow)
        self.handle = handle

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Closes the sessions as soon as no engine uses them."""
        if self.handle is not None:
            self._library.model_close(self.handle)
            self.handle = None


class _Closed:
    def __getattr__(self, name: str) -> Any:
        raise LoopError("the loop is closed")


class Loop:
    """One native scheduler and its engines. Thread-safe, except for `take` and `close`."""

    def __init__(self, library: LoopLibrary, config: LoopConfig, handle: c_void_p) -> None:
        """Takes over a loop."""
        self._quick: Any = library.quick
        self._slow: Any = library.slow
        self._checked = library.checked
        self._config = config
        self.handle = handle
        self._load = _Load()
        self._load_at = byref(self._load)
        self._data, self._size = POINTER(c_uint8)(), c_uint64()

    @classmethod
    def create(cls, library: LoopLibrary, config: LoopConfig, descriptor: int) -> "Loop":
        """Returns a loop without engines, which writes to the descriptor if there are records.

        Raises LoopError if the configuration is invalid, or the shortlist.
        """
        handle = c_void_p()
        structure = config.structure(descriptor)
        library.checked(library.quick.dragoman_loop_create(byref(structure), *config.continuing(), byref(handle)))
        return cls(library, config, handle)

    def close(self) -> None:
        """Frees the loop; all engines must have been stopped. Later calls raise LoopError."""
        destroy = self._quick.dragoman_loop_destroy
        self._quick = self._slow = _Closed()
        destroy(self.handle)

    def add_engine(self, model: LoopModel, slots: int) -> None:
        """Adds an engine, whose thread does not run yet; raises LoopError if the model does not fit the loop."""
        self._checked(self._quick.dragoman_loop_add_engine(self.handle, model.handle, slots))

    def submit(self, records: bytes) -> bool:
        """Queues sequences, or none; returns False after `drain`. Raises LoopError if a record is invalid."""
        return self._checked(self._quick.dragoman_loop_submit(self.handle, records, len(records)))

    def cancel(self, ticket: int) -> None:
        """Releases a sequence within one step; does nothing if it has ended."""
        self._checked(self._quick.dragoman_loop_cancel(self.handle, ticket))

    def drain(self) -> None:
        """Refuses new sequences from now on."""
        self._checked(self._quick.dragoman_loop_drain(self.handle))

    def load(self) -> _Load:
        """Returns the present numbers of waiting and running sequences and rows; a later call updates them."""
        self._checked(self._quick.dragoman_loop_load(self.handle, self._load_at))
        return self._load

    def oldest_seconds(self) -> float:
        """Returns when the longest waiting sequence was queued; infinity: none waits."""
        seconds = c_double()
        self._checked(self._quick.dragoman_loop_oldest(self.handle, byref(seconds)))
        return seconds.value

    def rows_before(self, deadline_seconds: float, priority: int) -> int:
        """Returns how many rows start before the first sequence of a new fairness key."""
        rows = c_int64()
        self._checked(self._quick.dragoman_loop_rows_before(self.handle, deadline_seconds, priority, byref(rows)))
        return rows.value

    def take(self, *, pause: bool) -> bytes:
        """Returns the records since the last call; with a pause, only ends and first tokens wake Python until then."""
        data, size = byref(self._data), byref(self._size)
        self._checked(self._quick.dragoman_loop_take(self.handle, pause, data, size))
        return ctypes.string_at(self._data, self._size.value)

    def start(self, engine: int) -> None:
        """Starts the thread of an engine."""
        self._checked(self._quick.dragoman_engine_start(self.handle, engine))

    def stop(self, engine: int, timeout_seconds: float) -> bool:
        """Ends the thread of an engine after its step; returns False if it hangs and was abandoned."""
        slow = self._slow
        return self._checked(slow.dragoman_engine_stop(self.handle, engine, timeout_seconds), slow)

    def health(self, engine: int) -> _Health:
        """Returns start of the step and failures of an engine."""
        health = _Health()
        self._checked(self._quick.dragoman_engine_health(self.handle, engine, byref(health)))
        return health

    def counts(self, engine: int) -> tuple[PhaseCounts, PhaseCounts, float, float]:
        """Returns the runs of encoder and decoder, and the seconds of the search and of the rest.

        The rest is all other time from the creation of the engine to the end of its last step.
        """
        seconds_counts, sequence_counts = len(self._config.seconds_bounds) + 1, len(self._config.sequence_bounds) + 1
        size = 2 + seconds_counts + sequence_counts
        values = (c_uint64 * (2 * size + 2))()
        self._checked(self._quick.dragoman_engine_counters(self.handle, engine, values, len(values)))
        phases = [
            PhaseCounts(
                values[first] / 1e9,
                values[first + 1],
                tuple(values[first + 2 : first + 2 + seconds_counts]),
                tuple(values[first + 2 + seconds_counts : first + size]),
            )
            for first in (0, size)
        ]
        search, rest = (value / 1e9 for value in values[2 * size :])
        return phases[0], phases[1], search, rest
