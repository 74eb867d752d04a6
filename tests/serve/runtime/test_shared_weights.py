"""Sessions of a process share the weights that several graphs read, and the arena that they compute in."""

import math
import sys
from pathlib import Path
from shutil import copytree

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from dragoman.serve.bundle.bundle import DECODER_FILE, ENCODER_FILE, WEIGHTS_FILE, Bundle, BundleError, write_manifest
from dragoman.serve.runtime.host import SharedWeights
from dragoman.serve.runtime.onnx_runtime import open_session, session_options, shared_options
from dragoman.serve.runtime.sessions import load_sessions
from tests.support.processes import resident_bytes
from tests.support.stepping import logits_of_step

ON_LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads memory maps of Linux")
SOURCE = np.array([[5, 6, 7, 3]])
LENGTHS = np.array([4], np.int32)
# Sizes of a run, large enough that a second arena would show.
MANY_ROWS, LONG = 128, 40


@pytest.fixture(scope="module", params=["wide", "aligned", "int8"])
def bundle(request: pytest.FixtureRequest) -> Bundle:
    """A model whose embeddings are larger than a page."""
    value: Bundle = request.getfixturevalue(f"{request.param}_bundle")
    return value


def test_shared_weights_are_in_all_graphs(bundle: Bundle) -> None:
    shared = SharedWeights.of(bundle)
    assert max(math.prod(value.shape()) for value in shared.encoder.values()) >= 256 * bundle.manifest.vocabulary_size
    for file, weights in ((ENCODER_FILE, shared.encoder), (DECODER_FILE, shared.decoder)):
        graph = onnx.load(bundle.folder / file).graph
        occupied = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        for name, value in weights.items():
            np.testing.assert_array_equal(value.numpy(), occupied[name], strict=True)


def test_shared_weights_change_no_bit(bundle: Bundle) -> None:
    separate = Bundle(bundle.folder, bundle.manifest.model_copy(update={"shared_weights": ()}), bundle.golden)
    logits = []
    for item in (bundle, separate):
        sessions = load_sessions(item, threads=1, aligned=bool(bundle.manifest.alignment_heads))
        assert bool(sessions.weights.decoder) is (item is bundle)
        runtime = sessions.runtime(slots=1)
        runtime.encode(SOURCE, LENGTHS, [[0]])
        logits.append(logits_of_step(runtime, np.array([2]), np.zeros(1, np.int32), LENGTHS).copy())
    assert logits[0].tobytes() == logits[1].tobytes()


@ON_LINUX
def test_shared_weights_are_mapped_once(wide_bundle: Bundle, tmp_path: Path) -> None:
    bundle = Bundle.open(copytree(wide_bundle.folder, tmp_path / "copy"))
    sessions = load_sessions(bundle, threads=1)
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if str(bundle.folder) in line]
    mapped = []
    for addresses, _, offset, *_ in maps:
        first, last = (int(address, 16) for address in addresses.split("-"))
        begin_bytes = int(offset, 16)
        mapped.append(range(begin_bytes, begin_bytes + last - first))
    assert bundle.manifest.shared_weights
    for weight in bundle.manifest.shared_weights:
        last = weight.offset_bytes + math.prod(weight.shape) * np.dtype(weight.type).itemsize - 1
        # Its neighbors may share its first page or its last one.
        assert sum(weight.offset_bytes in part and last in part for part in mapped) == 1
    del sessions


def test_a_shared_weight_outside_the_file_is_rejected(wide_bundle: Bundle, tmp_path: Path) -> None:
    folder = copytree(wide_bundle.folder, tmp_path / "changed")
    size = (folder / WEIGHTS_FILE).stat().st_size
    weights = tuple(part.model_copy(update={"offset_bytes": size}) for part in wide_bundle.manifest.shared_weights)
    write_manifest(folder, wide_bundle.manifest.model_copy(update={"shared_weights": weights}))
    with pytest.raises(BundleError, match=rf"shared_weights: .+: offset_bytes: {size}: "):
        load_sessions(Bundle.open(folder), threads=1)


@ON_LINUX
def test_sessions_compute_in_one_arena(states_bundle: Bundle) -> None:
    """The first session allocated the memory that the second one computes in."""
    sources = np.full((MANY_ROWS, LONG), 5), np.full(MANY_ROWS, LONG, np.int32)
    signature = states_bundle.manifest.encoder

    def taken_bytes(options: object) -> int:
        session = open_session(states_bundle.encoder_path, options)
        before = resident_bytes()
        session.run(signature.outputs, dict(zip(signature.inputs, sources, strict=True)))
        kept.append(session)
        return resident_bytes() - before

    kept: list[object] = []
    alone = taken_bytes(session_options(threads=1))
    taken_bytes(shared_options(1, {}))
    assert taken_bytes(shared_options(1, {})) < alone / 4
