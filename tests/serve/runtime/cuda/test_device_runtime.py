"""The device runtime on the CPU provider computes what native graphs of the same model compute, whatever its buckets.

Logits and attention may differ by `TOLERANCE`, as sums are rounded in another order. `tests/gpu` holds the tests that
need a GPU.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dragoman.model.tokenizer.tokenizer import BOS_ID, EOS_ID, PAD_ID
from dragoman.serve.bundle.bundle import Bundle, BundleError
from dragoman.serve.bundle.manifest import StateSpec
from dragoman.serve.runtime.cuda import runtime as device_runtime
from dragoman.serve.runtime.cuda.device import Device
from dragoman.serve.runtime.cuda.runtime import DeviceRuntime, DeviceSessions
from dragoman.serve.runtime.native import NativeRuntime, NativeSessions
from dragoman.serve.runtime.onnx_runtime import run_options

SLOTS = 6
# Limits of the wide models.
MAX_SOURCE, MAX_TARGET = 40, 24
MIN_CAPACITY = 8
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def sessions(wide_bundle: Bundle) -> NativeSessions:
    return NativeSessions.load(wide_bundle, threads=1, aligned=True)


@pytest.fixture(scope="module")
def device_sessions(states_bundle: Bundle) -> DeviceSessions:
    return DeviceSessions.load(states_bundle, Device("cpu"))


@pytest.fixture(autouse=True)
def _small_capacities() -> Iterator[None]:
    """Sets capacities of 8, 16, 32 and 40 positions, and a state that shrinks soon."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_runtime, "MIN_SOURCE_CAPACITY", MIN_CAPACITY)
        patch.setattr(device_runtime, "SHRINK_STEPS", 3)
        patch.setattr(device_runtime, "ENCODER_ROWS", 3)
        yield


class Pair:
    """The same rows in both runtimes; every step compares them."""

    def __init__(self, sessions: NativeSessions, device_sessions: DeviceSessions, seed: int = 1) -> None:
        self.host = NativeRuntime(sessions, SLOTS, every_head=True)
        self.device = DeviceRuntime(device_sessions, SLOTS)
        self._random = np.random.default_rng(seed)
        self._vocabulary = sessions.manifest.vocabulary_size
        self.lengths: dict[int, int] = {}
        self.positions: dict[int, int] = {}

    def encode(self, *lengths: int, copies: int = 1) -> None:
        """Encodes new sources into the first free rows, as many as copies for each."""
        ids = np.full((len(lengths), max(lengths)), PAD_ID, np.int64)
        for row, length in zip(ids, lengths, strict=True):
            row[: length - 1] = self._random.integers(4, self._vocabulary, length - 1)
            row[length - 1] = EOS_ID
        free = [row for row in range(SLOTS) if row not in self.lengths]
        rows = [free[copies * number : copies * (number + 1)] for number in range(len(lengths))]
        for runtime in (self.host, self.device):
            runtime.encode(ids, np.array(lengths, np.int32), rows)
        for own, length in zip(rows, lengths, strict=True):
            self.lengths |= dict.fromkeys(own, length)
            self.positions |= dict.fromkeys(own, 0)

    def step(self) -> NDArray[np.float32]:
        """Runs a step with the same random tokens in both; returns the logits."""
        rows, positions = np.array(list(self.lengths)), np.array(list(self.positions.values()), np.int32)
        tokens = self._random.integers(4, self._vocabulary, len(rows))
        tokens[positions == 0] = BOS_ID
        arguments = rows, tokens, positions, np.array(list(self.lengths.values()), np.int32)
        expected = self.host.step(*arguments, scored_rows=rows, aligned=True).fetch(rows)
        actual = self.device.step(*arguments).fetch(rows)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE)
        self.positions = {row: position + 1 for row, position in self.positions.items()}
        return expected

    def leave(self, *rows: int) -> None:
        for row in rows:
            del self.lengths[row], self.positions[row]


@pytest.fixture
def pair(sessions: NativeSessions, device_sessions: DeviceSessions) -> Pair:
    return Pair(sessions, device_sessions)


@pytest.mark.parametrize("rows", range(1, SLOTS + 1))
def test_every_number_of_rows_computes_what_native_graphs_compute(pair: Pair, rows: int) -> None:
    pair.encode(*[5, 40, 1, 17, 33, 8][:rows])
    for _ in range(4):
        pair.step()


def test_prepare_changes_no_result(pair: Pair) -> None:
    pair.device.prepare()
    pair.encode(3, 9)
    for _ in range(4):
        pair.step()


def test_a_former_padding_row_computes_as_a_new_one(pair: Pair) -> None:
    pair.encode(5, 6, 7)
    pair.step()  # the fourth row is padding of the bucket
    pair.encode(11)
    for _ in range(3):
        pair.step()


def test_the_capacity_grows_and_shrinks_with_the_sources(pair: Pair) -> None:
    pair.encode(5, 7)
    pair.step()
    capacities = [pair.device._state.source_capacity]
    pair.encode(33)
    capacities.append(pair.device._state.source_capacity)
    pair.step()
    pair.leave(2)
    for _ in range(4):
        pair.step()
    capacities.append(pair.device._state.source_capacity)
    assert capacities == [8, 40, 8]
    pair.step()


def test_copies_may_exceed_the_rows_of_one_run(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.serve.runtime.cuda.kv_cache.COPIED_ROWS", 2)
    pair.encode(5, 6, copies=3)
    pair.step()
    for runtime in (pair.host, pair.device):
        runtime.branch_rows([0, 0, 3], [1, 2, 5], [1, 1, 1])
    pair.step()


@settings(max_examples=15)
@given(
    plan=st.lists(st.tuples(st.lists(st.integers(1, MAX_SOURCE), max_size=3), st.integers(0, 3)), max_size=30),
    seed=st.integers(0, 99),
)
def test_rows_that_come_and_go(
    sessions: NativeSessions, device_sessions: DeviceSessions, plan: list[tuple[list[int], int]], seed: int
) -> None:
    """Rows join before a step and leave after it; those between them are free."""
    pair, random = Pair(sessions, device_sessions, seed), np.random.default_rng(seed)
    for joining, leaving in plan:
        new = joining[: SLOTS - len(pair.lengths)]
        if new:
            pair.encode(*new)
        if not pair.lengths:
            continue
        pair.step()
        left = set(random.integers(SLOTS, size=leaving).tolist())
        pair.leave(*[row for row, position in pair.positions.items() if position == MAX_TARGET or row in left])


def test_alignments_are_those_of_native_graphs_in_any_capacity(sessions: NativeSessions, states_bundle: Bundle) -> None:
    pair = Pair(sessions, DeviceSessions.load(states_bundle, Device("cpu"), aligned=True))
    heads = [head.head for head in states_bundle.manifest.alignment_heads]  # all of the first layer
    assert pair.device.alignments.shape == (SLOTS, len(heads), MAX_SOURCE)
    for joining in ((5, 3, 7), (33,)):
        pair.encode(*joining)
        pair.step()
        for row, length in pair.lengths.items():
            expected, actual = pair.host.alignments[row, heads, :length], pair.device.alignments[row, :, :length]
            np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE)
            assert actual.sum(axis=1) == pytest.approx([1, 1])


def test_no_two_steps_of_any_runtime_share_a_cuda_graph(
    sessions: NativeSessions, device_sessions: DeviceSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph replays with the addresses of its capture: a shared id would write to another runtime's memory."""
    numbers: list[int] = []

    def note(number: int) -> object:
        numbers.append(number)
        return run_options(number)

    monkeypatch.setattr("dragoman.serve.runtime.onnx_runtime.run_options", note)
    capturing = replace(device_sessions, captured=True)  # the CPU provider ignores it
    for _ in range(2):
        pair = Pair(sessions, capturing)
        pair.device.prepare()
        pair.encode(5, 9)
        pair.step()
    capacities, buckets = 4, 4
    assert numbers == list(range(1, 1 + 2 * capacities * buckets))


def test_a_recurrent_state_is_rejected_by_name(states_bundle: Bundle) -> None:
    states = (StateSpec(name="hidden", shape=(8,)),)
    bundle = Bundle(states_bundle.folder, states_bundle.manifest.model_copy(update={"states": states}), ())
    with pytest.raises(BundleError, match="states: hidden: "):
        DeviceSessions.load(bundle, Device("cpu"))
