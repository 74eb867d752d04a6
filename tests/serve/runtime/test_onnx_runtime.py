"""Options of sessions."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from dragoman.serve.runtime import onnx_runtime
from dragoman.serve.runtime.onnx_runtime import session_options
from tests.support.native_sessions import open_graph

EXACT = "session.x64quantprecision"
# Shapes that take different kernels: of one row, and of many rows and an odd number of columns.
SHAPES = [(1, 64, 16), (7, 130, 33)]


def product_graph(weights: np.ndarray) -> bytes:
    """A product of activations, uint8 around 128, and weights."""
    given = helper.make_tensor_value_info("activations", TensorProto.UINT8, ["rows", len(weights)])
    result = helper.make_tensor_value_info("product", TensorProto.INT32, ["rows", weights.shape[1]])
    stored = [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(np.array(128, np.uint8), "zero")]
    node = helper.make_node("MatMulInteger", ["activations", "weights", "zero"], ["product"])
    graph = helper.make_graph([node], "product", [given], [result], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


def set_processor(flags: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
    (folder / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: fpu {flags}\n")
    patch.setattr(onnx_runtime, "PROCESSOR", folder / "cpuinfo")


@pytest.mark.parametrize("flags", ["avx2", "avx2 avx512f avx512bw", ""])
def test_products_of_8_bits_are_set_to_be_exact_on_a_processor_without_vnni(
    flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_processor(flags, tmp_path, monkeypatch)
    assert session_options(1).get_session_config_entry(EXACT) == "1"


def test_products_are_set_to_be_exact_where_the_processor_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_runtime, "PROCESSOR", tmp_path / "absent")
    assert session_options(1).get_session_config_entry(EXACT) == "1"


@pytest.mark.parametrize("flags", ["avx2 avx_vnni", "avx512f avx512_vnni"])
def test_vnni_is_used_where_it_exists(flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_processor(flags, tmp_path, monkeypatch)
    with pytest.raises(RuntimeError, match=EXACT):
        session_options(1).get_session_config_entry(EXACT)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("exact", [False, True])
def test_the_largest_products_of_8_bits_are_exact(
    shape: tuple[int, int, int], exact: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the kernels of this processor, and with those for a processor without VNNI."""
    if exact:
        set_processor("avx2", tmp_path, monkeypatch)
    rows, inner, columns = shape
    activations = np.full((rows, inner), 255, np.uint8)
    weights = np.full((inner, columns), 127, np.int8)
    activations[rows // 2 + 1 :], weights[:, ::2] = 0, -127
    (product,) = open_graph(product_graph(weights)).run(None, {"activations": activations})
    expected = (activations.astype(np.int32) - 128) @ weights.astype(np.int32)
    np.testing.assert_array_equal(product, expected)
