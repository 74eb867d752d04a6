"""The reader of model.bin returns what CTranslate2 writes, and reports damage as an error."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dragoman.export.imports.common import ImportedModelError
from dragoman.export.imports.ctranslate2_files import TYPES, Variable, dequantized, read_model_file
from tests.support.ctranslate2_models import model_file

MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)


def read(folder: Path, content: bytes) -> dict[str, Variable]:
    path = folder / "model.bin"
    path.write_bytes(content)
    file = read_model_file(path)
    assert (file.specification, file.revision) == (("TransformerSpec", 7) if file.version > 1 else ("", 1))
    return file.variables


def refusal(folder: Path, content: bytes) -> str:
    with pytest.raises(ImportedModelError) as refused:
        read(folder, content)
    prefix = f"{folder / 'model.bin'}: not a CTranslate2 model: "
    assert str(refused.value).startswith(prefix)
    return str(refused.value).removeprefix(prefix)


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6])
def test_variables_of_every_version_are_read(tmp_path: Path, version: int) -> None:
    written: dict[str, Variable] = {"a": MATRIX, "b/weight": MATRIX.astype(np.int8), "c": np.array(5, np.int16)}
    found = read(tmp_path, model_file(written, version=version))
    assert list(found) == list(written)
    for name, value in written.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].dtype == value.dtype
        assert found[name].shape == value.shape


def test_half_precision_is_read(tmp_path: Path) -> None:
    content = model_file({"a": MATRIX.astype(np.float16)})
    np.testing.assert_array_equal(read(tmp_path, content)["a"], MATRIX)
    # The upper halves of float32 numbers, with their type number instead of int16's.
    content = model_file({"a": (MATRIX.view(np.uint32) >> 16).astype(np.uint16).view(np.int16)})
    place = content.index(b"a\0") + 2 + 1 + 2 * 4
    assert content[place] == TYPES.index("int16")
    content = content[:place] + bytes([TYPES.index("bfloat16")]) + content[place + 1 :]
    np.testing.assert_array_equal(read(tmp_path, content)["a"], MATRIX)


def test_an_alias_is_the_same_array_object_with_its_scale(tmp_path: Path) -> None:
    written: dict[str, Variable] = {"a/weight": MATRIX.astype(np.int8), "a/weight_scale": np.ones(2, np.float32)}
    found = read(tmp_path, model_file(written, [("b/weight", "a/weight")]))
    assert found["b/weight"] is found["a/weight"]
    assert found["b/weight_scale"] is found["a/weight_scale"]
    plain = dequantized(tmp_path, found)
    assert set(plain) == {"a/weight", "b/weight"}
    assert plain["b/weight"] is plain["a/weight"]


@pytest.mark.parametrize(("dtype", "scale"), [(np.int8, [2.0, 4.0]), (np.int16, 2.0)])
def test_quantized_values_are_divided_by_their_scale(tmp_path: Path, dtype: type, scale: object) -> None:
    scales = np.array(scale, np.float32)
    plain = dequantized(tmp_path, {"a/weight": MATRIX.astype(dtype), "a/weight_scale": scales})
    np.testing.assert_array_equal(plain["a/weight"], MATRIX / scales.reshape(-1, 1))
    assert plain["a/weight"].dtype == np.float32


@pytest.mark.parametrize("scale", [None, np.ones(3, np.float32), np.array([1, 0]), np.array([1, np.nan])])
def test_a_scale_that_does_not_fit_is_named(tmp_path: Path, scale: NDArray[np.float32] | None) -> None:
    variables: dict[str, Variable] = {"a/weight": MATRIX.astype(np.int8)}
    if scale is not None:
        variables["a/weight_scale"] = scale
    with pytest.raises(ImportedModelError, match="a/weight_scale: "):
        dequantized(tmp_path, variables)


@pytest.mark.parametrize("version", [0, 7, 2**32 - 1])
def test_another_version_is_refused(tmp_path: Path, version: int) -> None:
    content = struct.pack("<I", version) + model_file({})[4:]
    assert refusal(tmp_path, content) == f"binary version is {version}, expected 1 to 6"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "ends after 0 bytes"),
        (model_file({"a": MATRIX})[:-1], "ends after"),
        (model_file({"a": MATRIX}) + b"x", "1 bytes after"),
        (model_file({}, [("b", "a")]), "b is an alias of a"),
        (model_file({"a": MATRIX}).replace(struct.pack("<I", 24), struct.pack("<I", 20)), "a: 20 bytes, expected 24"),
        (model_file({"a": MATRIX[:0]}), "a: shape is (0, 3)"),
        (model_file({"a": MATRIX.reshape(1, 1, 1, 1, 1, 1, 1, 2, 3)}), "a: shape is (1, "),
        (model_file({"a": MATRIX}).replace(b"a\0", b"ab"), "a name lacks"),
        (model_file({"a": MATRIX}).replace(b"a\0", b"\xff\0"), "a name is not UTF-8"),
    ],
)
def test_damage_is_reported(tmp_path: Path, content: bytes, expected: str) -> None:
    assert refusal(tmp_path, content).startswith(expected)


@given(content=st.binary(max_size=80), kept=st.integers(0, 120))
def test_any_bytes_are_read_or_refused(content: bytes, kept: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.bin"
    path.write_bytes(model_file({"a": MATRIX, "b": MATRIX}, [("c", "a")])[:kept] + content)
    try:
        read_model_file(path)
    except ImportedModelError as error:
        assert str(path) in str(error)  # noqa: PT017 - most damaged files are no model, a few are
