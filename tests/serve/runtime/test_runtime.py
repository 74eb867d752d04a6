"""Batch invariance: a row's results are bitwise the same alone and in any batch.

Tests compare with `alone`: each sequence's logits from its own runtime, step by step. Sequences follow forced targets,
so that a different choice at one step cannot hide a difference at the next.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dragoman.model.tokenizer.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer
from dragoman.serve.bundle.bundle import DECODER_FILE, ENCODER_FILE, Bundle, BundleError
from dragoman.serve.native.library import FALLBACK, INSTRUCTIONS_VARIABLE
from dragoman.serve.runtime.model import Model
from dragoman.serve.runtime.native import NativeSessions
from dragoman.serve.runtime.onnx_runtime import open_session, session_options
from dragoman.serve.runtime.sessions import load_sessions
from tests.support.paths import ROOT
from tests.support.stepping import each, kept_tensors, logits_of_step
from tests.support.toy import WIDE, random_model

COUNT = 33
MAX_SOURCE, MAX_TARGET = 40, 18
POISONS = [np.nan, np.inf, 3e38]


@dataclass(frozen=True, slots=True)
class Forced:
    """A source, its forced target tokens, and the logits of each step alone."""

    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    alone: NDArray[np.float32]

    def assert_step(self, position: int, logits: NDArray[np.float32]) -> None:
        """Asserts that the logits of a step are bitwise equal to those of the sequence alone."""
        assert logits.tobytes() == self.alone[position].tobytes(), f"step {position} of {self.source_ids}"


def pad(sources: Sequence[tuple[int, ...]], length: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Returns sources padded for the encoder, to the longest or to a greater length."""
    lengths = np.array([len(source) for source in sources], np.int32)
    ids = np.full((len(sources), max(length, *lengths.tolist(), 1)), PAD_ID, np.int64)
    for row, source in zip(ids, sources, strict=True):
        row[: len(source)] = source
    return ids, lengths


def steps(runtime: Model, sequences: Sequence[Forced]) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Decodes encoded sequences that start together; yields the position and the logits of each step."""
    lengths = np.array([len(sequence.source_ids) for sequence in sequences], np.int32)
    for position in range(MAX_TARGET):
        tokens = np.array([sequence.target_ids[position] for sequence in sequences])
        yield position, logits_of_step(runtime, tokens, np.full(len(sequences), position, np.int32), lengths)


def assert_alone(runtime: Model, sequences: Sequence[Forced], first: int = 0) -> None:
    for position, logits in steps(runtime, sequences):
        for sequence, row in list(zip(sequences, logits, strict=True))[first:]:
            sequence.assert_step(position, row)


def encode_all(runtime: Model, sequences: Sequence[Forced], length: int = 0) -> None:
    runtime.encode(*pad([sequence.source_ids for sequence in sequences], length), each(range(len(sequences))))


def poison_source(runtime: Any, row: int, first: int, poison: float) -> None:
    """Overwrites the source of a row from a position on, in all tensors of floats."""
    for array in runtime._sources.values():
        if array.dtype == np.int8:
            continue
        for position in range(first, MAX_SOURCE):
            block, lane = divmod(position, 16)
            keys, values = np.moveaxis(array[row, :, block], 1, 0)  # [layers, heads, 16 * D], or 16 scales
            keys.reshape(*keys.shape[:2], -1, 16)[..., lane] = poison
            values.reshape(*values.shape[:2], 16, -1)[:, :, lane] = poison


@pytest.fixture(scope="module", params=["native", "int8", "native-fallback", "int8-fallback"])
def bundle(request: pytest.FixtureRequest, tokenizer: Tokenizer, untrained: Callable[..., Bundle]) -> Iterator[Bundle]:
    """A bundle with both kinds of caches; its graphs run with the library and without it."""
    kind, _, mode = request.param.partition("-")
    with pytest.MonkeyPatch.context() as patch:
        if mode:
            patch.setenv(INSTRUCTIONS_VARIABLE, FALLBACK)
        if kind == "native":
            yield request.getfixturevalue("wide_bundle")
        else:
            yield untrained("int8_wide", random_model(1, tokenizer.vocabulary_size, **WIDE), precision="int8")


@pytest.fixture(scope="module")
def sessions(bundle: Bundle) -> NativeSessions:
    return load_sessions(bundle, threads=1)


@pytest.fixture(scope="module")
def forced(sessions: NativeSessions) -> list[Forced]:
    """Sequences of every length, from only the end token to the longest."""
    random = np.random.default_rng(1)
    vocabulary = sessions.manifest.vocabulary_size
    runtime = sessions.runtime(slots=1)
    sequences = []
    for length in random.permutation(np.linspace(0, MAX_SOURCE - 1, COUNT).astype(int)):
        source_ids = (*random.integers(4, vocabulary, size=length).tolist(), EOS_ID)
        target_ids = (BOS_ID, *random.integers(4, vocabulary, size=MAX_TARGET - 1).tolist())
        sequence = Forced(source_ids, target_ids, np.empty((MAX_TARGET, vocabulary), np.float32))
        encode_all(runtime, [sequence])
        for position, logits in steps(runtime, [sequence]):
            sequence.alone[position] = logits[0]
        sequences.append(sequence)
    return sequences


def test_sequences_differ_from_each_other(forced: list[Forced]) -> None:
    """Equal sequences would make the tests below meaningless."""
    assert len({sequence.alone[0].tobytes() for sequence in forced}) == COUNT
    for sequence in forced:
        assert np.isfinite(sequence.alone).all()
        assert np.ptp(sequence.alone, axis=1).min() > 0.1


@pytest.mark.parametrize("rows", [2, 3, 7, 16, 33])
def test_the_size_of_the_batch_changes_nothing(sessions: NativeSessions, forced: list[Forced], rows: int) -> None:
    """Also if a few slots stay free."""
    slots = rows + rows % 3
    runtime = sessions.runtime(slots=slots)
    assert runtime.slots == slots
    encode_all(runtime, forced[:rows])
    assert_alone(runtime, forced[:rows])


@pytest.mark.parametrize("length", [MAX_SOURCE, 17])
def test_padding_of_sources_changes_nothing(sessions: NativeSessions, forced: list[Forced], length: int) -> None:
    short = [sequence for sequence in forced if len(sequence.source_ids) <= length]
    runtime = sessions.runtime(slots=len(short))
    encode_all(runtime, short, length)
    assert_alone(runtime, short)


def test_the_content_of_padding_changes_nothing(sessions: NativeSessions, forced: list[Forced]) -> None:
    ids, lengths = pad([sequence.source_ids for sequence in forced])
    for row, length in zip(ids, lengths, strict=True):
        row[length:] = 5
    runtime = sessions.runtime(slots=COUNT)
    runtime.encode(ids, lengths, each(range(len(ids))))
    assert_alone(runtime, forced)


@pytest.mark.parametrize("poison", POISONS)
def test_former_content_of_a_slot_changes_nothing(
    sessions: NativeSessions, forced: list[Forced], poison: float
) -> None:
    """The slots are dirty behind the valid length of a row, and in other slots."""
    runtime = sessions.runtime(slots=COUNT)
    for tensor in kept_tensors(runtime):
        tensor[:] = 99 if tensor.dtype == np.int8 else poison
    encode_all(runtime, forced[:9])
    for row, sequence in enumerate(forced[:9]):
        poison_source(runtime, row, len(sequence.source_ids), poison)
    assert_alone(runtime, forced[:9])


def test_a_neighbor_of_nan_changes_nothing(sessions: NativeSessions, forced: list[Forced]) -> None:
    runtime = sessions.runtime(slots=COUNT)
    encode_all(runtime, forced)
    poison_source(runtime, 0, 0, np.nan)
    assert_alone(runtime, forced, first=1)


def test_rows_of_one_source_decode_it_together(sessions: NativeSessions, forced: list[Forced]) -> None:
    runtime = sessions.runtime(slots=COUNT)
    ids, lengths = pad([sequence.source_ids for sequence in forced[:3]])
    runtime.encode(ids, lengths, [[4, 1], [0], [2, 5, 3]])
    assert_alone(runtime, [forced[number] for number in (1, 0, 2, 2, 0, 2)])


@settings(max_examples=8)
@given(plan=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=5, max_size=40), seed=st.integers(0, 99))
def test_other_sequences_that_join_and_leave_change_nothing(
    sessions: NativeSessions, forced: list[Forced], plan: list[tuple[int, int]], seed: int
) -> None:
    """Sequences join before a step and leave after it; every row is at a different position, and some are free."""
    random = np.random.default_rng(seed)
    runtime = sessions.runtime(slots=8)
    running: dict[int, tuple[Forced, int]] = {}  # the sequence of each row, and its position
    for joining, leaving in plan:
        free = sorted(set(range(8)) - set(running))[:joining]
        new = [forced[number] for number in random.integers(COUNT, size=len(free))]
        if new:
            runtime.encode(*pad([sequence.source_ids for sequence in new]), each(free))
            running |= {row: (sequence, 0) for row, sequence in zip(free, new, strict=True)}
        if not running:
            continue
        rows = np.array(list(running))
        tokens = np.array([sequence.target_ids[position] for sequence, position in running.values()])
        positions = np.array([position for _, position in running.values()], np.int32)
        lengths = np.array([len(sequence.source_ids) for sequence, _ in running.values()], np.int32)
        scores = runtime.step(rows, tokens, positions, lengths, scored_rows=rows)
        for (sequence, position), logits in zip(running.values(), scores.fetch(rows), strict=True):
            sequence.assert_step(position, logits)
        left = set(random.integers(8, size=leaving).tolist())
        running = {
            row: (sequence, position + 1)
            for row, (sequence, position) in running.items()
            if position + 1 < MAX_TARGET and row not in left
        }


def test_engines_that_share_sessions_do_not_disturb_each_other(sessions: NativeSessions, forced: list[Forced]) -> None:
    def translate(first: int) -> None:
        runtime = sessions.runtime(slots=16)
        for _ in range(2):
            encode_all(runtime, forced[first : first + 16])
            assert_alone(runtime, forced[first : first + 16])

    with ThreadPoolExecutor(2) as pool:
        for finished in [pool.submit(translate, first) for first in (0, 16)]:
            finished.result()


@pytest.mark.parametrize("rows", [2, 33])
def test_the_number_of_threads_changes_nothing(bundle: Bundle, forced: list[Forced], rows: int) -> None:
    runtime = load_sessions(bundle, threads=2).runtime(slots=rows)
    encode_all(runtime, forced[:rows])
    assert_alone(runtime, forced[:rows])


@pytest.mark.promise("R28")
@pytest.mark.parametrize("file", [ENCODER_FILE, DECODER_FILE])
def test_a_graph_that_onnx_runtime_rejects_is_named(wide_bundle: Bundle, tmp_path: Path, file: str) -> None:
    folder = copytree(wide_bundle.folder, tmp_path / "bundle")
    (folder / file).write_bytes(b"no graph")
    with pytest.raises(BundleError, match=f"{file}: "):
        load_sessions(Bundle(folder, wide_bundle.manifest, ()), threads=1)


def test_the_optimized_graph_is_the_one_that_a_server_runs(states_bundle: Bundle, tmp_path: Path) -> None:
    """By default ONNX Runtime would fuse residual connections with normalizations, which is slower."""
    options = session_options(threads=1)
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    open_session(states_bundle.decoder_path, options)
    operators = {node.op_type for node in onnx.load(tmp_path / "optimized.onnx", load_external_data=False).graph.node}
    assert "LayerNormalization" in operators
    assert "SkipLayerNormalization" not in operators


def test_telemetry_is_disabled() -> None:
    """The variable is set before the library is loaded; later would be too late."""
    program = """
import os, sys
os.environ.pop("ORT_DISABLE_TELEMETRY", None)
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "onnxruntime":
            print(os.environ.get("ORT_DISABLE_TELEMETRY"))
sys.meta_path.insert(0, Watch())
import dragoman.serve.runtime.native
"""
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT)
    assert printed.stdout == "1\n"
