"""The device runtime on the CPU provider computes what native graphs of the same model compute, whatever its buckets.

Logits and attention may differ by `TOLERANCE`, as sums are rounded in another order. A stub of the driver, whose device
is the host, counts memory and fails on demand. `tests/gpu` holds the tests that need a GPU.
"""

import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from structlog.testing import capture_logs

from benchmarks.harness.errors import BenchmarkError
from benchmarks.systems.native_engine import LiveNativeEngines, settings_of
from dragoman.model.tokenizer.tokenizer import BOS_ID, EOS_ID, PAD_ID
from dragoman.serve.bundle.bundle import Bundle, BundleError
from dragoman.serve.bundle.manifest import StateSpec
from dragoman.serve.native.build import find_compiler
from dragoman.serve.native.loop import LoopError
from dragoman.serve.runtime import device, onnx_runtime, placement
from dragoman.serve.runtime.device import DeviceGraphs, DeviceRuntime
from dragoman.serve.runtime.native import NativeRuntime, NativeScores, NativeSessions
from dragoman.serve.scheduler.sequence import SequenceSpec
from dragoman.serve.search.options import SearchOptions

pytestmark = pytest.mark.skipif(bool(onnx_runtime.why_no_kernels()), reason="no native library")
SLOTS = 6
# Limits of the wide models.
MAX_SOURCE, MAX_TARGET = 40, 24
TOLERANCE = 1e-4
# Best tokens of a row, for which the results of a step have no room at first.
MANY = 40
# Those of the memory plan.
PLANNED_ROWS = device.ENCODER_ROWS


@pytest.fixture(scope="module")
def sessions(wide_bundle: Bundle) -> NativeSessions:
    return NativeSessions.load(wide_bundle, threads=1, aligned=True)


@pytest.fixture(autouse=True)
def _small_capacities() -> Iterator[None]:
    """Sets capacities of 8, 16, 32 and 40 positions, and a state that shrinks soon."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"MIN_SOURCE_CAPACITY": 8, "SHRINK_STEPS": 3, "ENCODER_ROWS": 3}.items():
            patch.setattr(device, name, value)
        yield


class Pair:
    """The same rows in two runtimes; every step compares them."""

    def __init__(self, expected: Any, actual: DeviceRuntime, seed: int = 1) -> None:
        self.expected, self.actual = expected, actual
        self._random = np.random.default_rng(seed)
        self._vocabulary = actual._vocabulary_size
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
        for runtime in (self.expected, self.actual):
            runtime.encode(ids, np.array(lengths, np.int32), rows)
        for own, length in zip(rows, lengths, strict=True):
            self.lengths |= dict.fromkeys(own, length)
            self.positions |= dict.fromkeys(own, 0)

    def step(self, best_count: int = 5) -> tuple[NativeScores, NDArray[np.float32]]:
        """Runs a step with the same random tokens in both; returns the scores of the second, and its logits."""
        rows, positions = np.array(list(self.lengths)), np.array(list(self.positions.values()), np.int32)
        tokens = self._random.integers(4, self._vocabulary, len(rows))
        tokens[positions == 0] = BOS_ID
        arguments = rows, tokens, positions, np.array(list(self.lengths.values()), np.int32)
        expected, actual = (
            model.step(*arguments, scored_rows=rows, best_count=best_count, aligned=True)
            for model in (self.expected, self.actual)
        )
        logits: NDArray[np.float32] = actual.fetch(rows)
        np.testing.assert_allclose(logits, expected.fetch(rows), rtol=0, atol=TOLERANCE)
        for own, other in zip(actual.best(rows, best_count), expected.best(rows, best_count), strict=True):
            np.testing.assert_allclose(own, other, rtol=0, atol=TOLERANCE)
        self.positions = {row: position + 1 for row, position in self.positions.items()}
        return actual, logits

    def leave(self, *rows: int) -> None:
        for row in rows:
            del self.lengths[row], self.positions[row]


@pytest.fixture
def pair(sessions: NativeSessions, states_bundle: Bundle) -> Pair:
    return pair_of(sessions, states_bundle)


def pair_of(sessions: NativeSessions, bundle: Bundle, seed: int = 1) -> Pair:
    return Pair(NativeRuntime(sessions, SLOTS, every_head=True), DeviceGraphs(bundle, 0).runtime(SLOTS), seed)


@pytest.mark.parametrize("rows", range(1, SLOTS + 1))
def test_every_number_of_rows_computes_what_native_graphs_compute(pair: Pair, rows: int) -> None:
    if rows % 2:
        pair.actual.model.prepare()
    pair.encode(*[5, 40, 1, 17, 33, 8][:rows])
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
    capacities = [pair.actual.model.source_capacity]
    pair.encode(33)
    capacities.append(pair.actual.model.source_capacity)
    pair.step()
    pair.leave(2)
    for _ in range(4):
        pair.step()
    capacities.append(pair.actual.model.source_capacity)
    assert capacities == [8, 40, 8]
    pair.step()


def test_a_branch_copies_the_tokens_that_a_row_has(pair: Pair) -> None:
    pair.encode(5, 6, copies=3)
    for tokens in range(1, 4):
        pair.step()
        for runtime in (pair.expected, pair.actual):
            runtime.branch_rows([0, 0, 3], [1, 2, 5], [tokens] * 3)
    pair.step()


@settings(max_examples=8)
@given(
    plan=st.lists(st.tuples(st.lists(st.integers(1, MAX_SOURCE), max_size=3), st.integers(0, 3)), max_size=30),
    seed=st.integers(0, 99),
)
def test_rows_that_come_and_go(
    sessions: NativeSessions, states_bundle: Bundle, plan: list[tuple[list[int], int]], seed: int
) -> None:
    """Rows join before a step and leave after it; those between them are free."""
    pair, random = pair_of(sessions, states_bundle, seed), np.random.default_rng(seed)
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
    runtime = DeviceGraphs(states_bundle, 0, aligned=True).runtime(SLOTS)
    pair = Pair(NativeRuntime(sessions, SLOTS, every_head=True), runtime)
    heads = [head.head for head in states_bundle.manifest.alignment_heads]  # all of the first layer
    assert pair.actual.alignments.shape == (SLOTS, len(heads), MAX_SOURCE)
    for joining in ((5, 3, 7), (33,)):
        pair.encode(*joining)
        pair.step()
        for row, length in pair.lengths.items():
            expected, actual = pair.expected.alignments[row, heads, :length], runtime.alignments[row, :, :length]
            np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE)
            assert actual.sum(axis=1) == pytest.approx([1, 1])


def test_changed_logits_are_chosen_from_again_and_every_token_has_the_score_of_its_rank(pair: Pair) -> None:
    pair.encode(5, 9, 11)
    scores, logits = pair.step()
    rows = np.array([0, 2])
    best_scores, best_ids = scores.best(rows, 5)
    assert scores.of(rows, best_ids[:, 3]).tobytes() == best_scores[:, 3].tobytes()
    kept = logits[rows]
    kept[:, best_ids[:, 0]] = -np.inf
    scores.store(rows, kept)
    assert (scores.best(rows, 1)[1][:, 0] == kept.argmax(axis=1)).all()


def test_a_recurrent_state_is_rejected_by_name(states_bundle: Bundle) -> None:
    states = (StateSpec(name="hidden", shape=(8,)),)
    bundle = Bundle(states_bundle.folder, states_bundle.manifest.model_copy(update={"states": states}), ())
    with pytest.raises(BundleError, match="states: hidden: "):
        DeviceGraphs(bundle, 0)


class Stub:
    """The stub of the driver."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        library = ctypes.CDLL(self.path)
        self._bytes, self._limit = (ctypes.c_uint64.in_dll(library, f"stub_{name}") for name in ("bytes", "limit"))
        self._failing = (ctypes.c_char * 64).in_dll(library, "stub_failing")

    @property
    def bytes(self) -> int:
        """Memory that is allocated now."""
        return self._bytes.value

    def set(self, *, failing: str = "", limit: int = 2**64 - 1) -> None:
        self._failing.value, self._limit.value = failing.encode(), limit


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Stub:
    path = tmp_path_factory.mktemp("driver") / "libcuda.so"
    compiler = find_compiler()
    assert compiler is not None
    source = Path(__file__).with_name("driver_stub.cpp")
    subprocess.run([*compiler, "-std=c++17", "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    return Stub(path)


@pytest.fixture(autouse=True)
def _working_driver(stub: Stub) -> Iterator[None]:
    yield
    stub.set()


def test_memory_of_a_driver_gives_the_bits_of_the_host(states_bundle: Bundle, stub: Stub) -> None:
    """Its memory holds NaN at first, which must not pass through a product with zero."""
    pair = Pair(DeviceGraphs(states_bundle, 0).runtime(SLOTS), runtime := device_of(states_bundle, stub))
    pair.encode(5, 33, copies=2)
    for _ in range(3):
        _, logits = pair.step()
        for model in (pair.expected, pair.actual):
            model.branch_rows([0, 2], [1, 3], [1, 1])
    assert np.isfinite(logits).all()
    runtime.model.close()
    assert stub.bytes == 0


def device_of(bundle: Bundle, stub: Stub, **options: Any) -> DeviceRuntime:
    return DeviceGraphs(bundle, 0, driver=stub.path, **options).runtime(SLOTS)


def test_former_states_change_nothing(states_bundle: Bundle) -> None:
    graphs = DeviceGraphs(states_bundle, 0)
    pair = Pair(graphs.runtime(SLOTS), graphs.runtime(SLOTS))
    pair.actual.model.fill(0x3F)  # 0.75 as a float
    pair.encode(5, 12)
    pair.step()


@pytest.mark.parametrize(("driver", "problem"), [("libnone.so", "cannot be loaded"), ("libc.so.6", "it has no cuInit")])
def test_a_driver_that_cannot_be_used_is_an_error(states_bundle: Bundle, driver: str, problem: str) -> None:
    with pytest.raises(BundleError, match=f"{states_bundle.folder}: .*{problem}"):
        DeviceGraphs(states_bundle, 0, driver=driver).open(1, SLOTS)


@pytest.mark.skipif(onnx_runtime.has_cuda(), reason="the package for GPUs is installed")
def test_the_package_for_cpus_opens_no_gpu(states_bundle: Bundle, stub: Stub) -> None:
    with pytest.raises(BundleError, match="CUDA execution provider is not enabled"):
        DeviceGraphs(states_bundle, 1, driver=stub.path).open(1, SLOTS)
    assert stub.bytes == 0


@pytest.mark.parametrize(
    "function", ["cuInit", "cuDeviceGet", "cuStreamCreate", "cuEventCreate", "cuMemsetD8Async", "cuMemHostAlloc"]
)
def test_a_device_that_fails_while_a_model_opens_frees_its_memory(
    states_bundle: Bundle, stub: Stub, function: str
) -> None:
    stub.set(failing=function)
    with pytest.raises(BundleError, match="CUDA_ERROR_LAUNCH_FAILED"):
        device_of(states_bundle, stub)
    assert stub.bytes == 0


def test_too_little_memory_is_an_error_that_names_the_setting(states_bundle: Bundle, stub: Stub) -> None:
    stub.set(limit=1000)
    with pytest.raises(BundleError, match=rf"^--slots: {SLOTS}: out of device memory: .*OUT_OF_MEMORY"):
        device_of(states_bundle, stub)
    stub.set()
    with pytest.raises(BundleError, match=rf"^--slots: {SLOTS}: out of device memory: .* bytes of 1000"):
        device_of(states_bundle, stub, memory_bytes=1000)
    assert stub.bytes == 0


@pytest.mark.parametrize(
    "function", ["cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize", "cuMemHostAlloc"]
)
def test_a_failing_device_fails_a_step_and_a_later_one_works(states_bundle: Bundle, stub: Stub, function: str) -> None:
    pair = Pair(DeviceGraphs(states_bundle, 0).runtime(SLOTS), device_of(states_bundle, stub))
    pair.encode(*range(1, SLOTS + 1))
    stub.set(failing=function)
    with pytest.raises(LoopError, match="CUDA_ERROR_LAUNCH_FAILED"):
        pair.step(MANY)
    stub.set()
    pair.step(MANY)


def test_a_failing_copy_fails_new_sequences_and_one_of_all_sources_every_sequence(
    states_bundle: Bundle, stub: Stub
) -> None:
    """A longer source makes all sources move."""
    model = DeviceGraphs(states_bundle, 0, driver=stub.path).open(1, SLOTS)
    short, long = (
        [SequenceSpec((*[5] * words, EOS_ID), SearchOptions(max_target_tokens=3))] for words in (3, MAX_SOURCE - 1)
    )
    with capture_logs() as logs:
        live = LiveNativeEngines(states_bundle, settings_of(states_bundle, engines=1, slots=SLOTS), model)
        live.translate(short)
        stub.set(failing="cuMemcpy3DAsync_v2")
        for wanted in (short, long):
            with pytest.raises(BenchmarkError):
                live.translate(wanted)
        live.close()
    assert [(entry["event"], entry["sequences"]) for entry in logs] == [("encode_failed", 1), ("decode_failed", 1)]


def test_an_engine_survives_a_device_that_fails_at_its_start(states_bundle: Bundle, stub: Stub) -> None:
    model = DeviceGraphs(states_bundle, 0, driver=stub.path).open(1, SLOTS)
    wanted = [SequenceSpec((5, 6, EOS_ID), SearchOptions(max_target_tokens=3))]
    stub.set(failing="cuMemcpyHtoDAsync_v2")
    with capture_logs() as logs:
        live = LiveNativeEngines(states_bundle, settings_of(states_bundle, engines=1, slots=SLOTS), model)
        model.close()
        with pytest.raises(BenchmarkError):
            live.translate(wanted)
        stub.set()
        assert live.translate(wanted)[0].best.token_scores
        live.close()
    assert [entry["event"] for entry in logs] == ["prepare_failed", "encode_failed"]
    assert stub.bytes == 0


@pytest.mark.parametrize("function", ["cuEventRecord", "cuEventSynchronize"])
def test_an_engine_survives_a_device_that_fails_while_a_step_runs_ahead(
    states_bundle: Bundle, stub: Stub, function: str
) -> None:
    model = DeviceGraphs(states_bundle, 0, driver=stub.path).open(1, SLOTS)
    live = LiveNativeEngines(states_bundle, settings_of(states_bundle, engines=1, slots=SLOTS), model)
    wanted = [SequenceSpec((5, 6, EOS_ID), SearchOptions(max_target_tokens=limit)) for limit in range(1, 9)]
    expected = [sequence.best for sequence in live.translate(wanted)]
    stub.set(failing=function)
    with pytest.raises(BenchmarkError):
        live.translate(wanted)
    stub.set()
    assert [sequence.best for sequence in live.translate(wanted)] == expected
    live.close()


@pytest.mark.parametrize("slots", [64, 2048])
def test_the_plan_matches_the_memory_of_a_model(states_bundle: Bundle, stub: Stub, slots: int) -> None:
    manifest = states_bundle.manifest
    model = DeviceGraphs(states_bundle, 0, aligned=True, driver=stub.path).open(1, slots)
    plan = placement.plan_memory(states_bundle, slots, 8 << 30)
    weights = placement.WEIGHT_COPIES * (states_bundle.folder / "weights.bin").stat().st_size
    heads, _, size = manifest.states[0].shape
    assert isinstance(heads, int)
    assert isinstance(size, int)
    state = 4 * manifest.max_source_tokens * heads * size
    activations = PLANNED_ROWS * placement.ENCODER_ACTIVATIONS * state
    scores = (placement.MATRICES - 1) * slots * manifest.vocabulary_size * 4
    others = weights + activations + scores + placement.RESERVE_BYTES
    sources = sum(spec.kind == "source" for spec in manifest.states)
    others += (PLANNED_ROWS - device.ENCODER_ROWS) * sources * state  # these tests encode fewer together
    small = 0 <= stub.bytes - (plan.total_bytes - others) < (1 << 17) + 256 * slots  # inputs, results and staging
    assert small
    model.close()
