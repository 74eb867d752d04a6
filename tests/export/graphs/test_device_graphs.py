"""The stored device graphs match their functions, and handle NaN rows and ties as the server requires."""

import numpy as np
import onnx
import pytest

from dragoman.export.graphs.weightless import FOLDER, device_graphs
from dragoman.serve.runtime.cuda.device import FLOAT, Device, DeviceTools
from dragoman.serve.runtime.onnx_runtime import CPU_PROVIDER

GRAPHS = device_graphs()


@pytest.fixture(scope="module")
def tools() -> DeviceTools:
    return DeviceTools.load(Device("cpu"), CPU_PROVIDER)


@pytest.mark.parametrize("file", GRAPHS)
def test_a_file_equals_the_graph_of_its_function(file: str) -> None:
    """To update: python -m dragoman.export.graphs.weightless."""
    stored = onnx.load(FOLDER / file)
    onnx.checker.check_model(stored)
    assert stored.SerializeToString() == GRAPHS[file].SerializeToString()


def test_there_are_no_other_files() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*GRAPHS}


def test_memory_starts_with_zeros(tools: DeviceTools) -> None:
    memory = tools.allocate(12)
    assert tools.fetch(memory.view(FLOAT, (3, 4)), np.arange(3)).tolist() == [[0.0] * 4] * 3


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_broken_row_has_score_nan_and_an_id_of_the_vocabulary(tools: DeviceTools, broken: float) -> None:
    logits = np.array([[1.0, 2.0, 0.0], [0.0, broken, 1.0], [broken] * 3], np.float32)
    given, taken = tools.device.hold(logits), tools.allocate(9)
    token_ids, scores = tools.choose_tokens(given[1], np.array([[2]]), taken.view(FLOAT, (3, 3)))
    assert token_ids[0] == 1
    assert scores[0] == pytest.approx(-0.4076, abs=1e-4)
    assert ((token_ids >= 0) & (token_ids < 3)).all()
    assert np.isnan(scores[1:]).all()


def test_the_lower_id_wins_a_tie(tools: DeviceTools) -> None:
    given, taken = tools.device.hold(np.array([[0.0, 5.0, 1.0, 5.0]], np.float32)), tools.allocate(4)
    token_ids, _ = tools.choose_tokens(given[1], np.array([[3]]), taken.view(FLOAT, (1, 4)))
    assert token_ids.tolist() == [1]
    assert tools.best(taken.view(FLOAT, (1, 4)), 2)[1].tolist() == [[1, 3]]


def test_rows_are_copied_within_the_same_memory(tools: DeviceTools) -> None:
    _, view = tools.device.hold(np.arange(8, dtype=np.float32).reshape(4, 2))
    tools.copy(view, view, np.array([0, 0]), np.array([2, 3]))
    assert tools.fetch(view, np.arange(4)).tolist() == [[0, 1], [2, 3], [0, 1], [0, 1]]


def test_rows_are_copied_from_the_host(tools: DeviceTools) -> None:
    _, view = tools.device.hold(np.zeros((3, 2), np.float32))
    tools.copy(np.array([[7, 8]], np.float32), view, np.array([0]), np.array([1]))
    assert tools.fetch(view, np.array([1, 2])).tolist() == [[7, 8], [0, 0]]


def test_another_capacity_keeps_what_fits(tools: DeviceTools) -> None:
    _, source = tools.device.hold(np.arange(6, dtype=np.float32).reshape(1, 1, 3, 2))
    target = tools.allocate(8).view(FLOAT, (1, 1, 4, 2))
    tools.change_capacity(source, target)
    assert tools.fetch(target._replace(shape=(1, 8)), np.array([0])).tolist() == [[0, 1, 2, 3, 4, 5, 4, 5]]
    tools.change_capacity(target, source._replace(shape=(1, 1, 2, 2)))
    assert tools.fetch(source._replace(shape=(1, 4)), np.array([0])).tolist() == [[0, 1, 2, 3]]
