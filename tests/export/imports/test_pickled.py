"""Files of PyTorch, read without it: both formats, every type, views, and files that are no tensors or are damaged."""

import io
import pickle
import zipfile
from collections import OrderedDict
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dragoman.export.imports.pickled import Interpreter, PickledError, read_pickled

FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int16, torch.uint8, torch.bool)


def read(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return read_pickled(file)


def save(path: Path, content: object, *, zipped: bool = True) -> Path:
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(PickledError) as refused:
        read(path)
    return str(refused.value)


@FORMATS
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_tensors_of_every_type_are_those_of_pytorch(kind: torch.dtype, zipped: bool, tmp_path: Path) -> None:
    values = (torch.randn(3, 4) * 9).to(kind)
    found = read(save(tmp_path / "m", {"a": values, "b": values[0]}, zipped=zipped))
    expected = values.float() if kind == torch.bfloat16 else values
    assert np.array_equal(found["a"], expected.numpy())
    assert np.array_equal(found["b"], expected[0].numpy())


@FORMATS
def test_a_state_of_modules_with_shared_and_transposed_parameters_is_read(zipped: bool, tmp_path: Path) -> None:
    state = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)).state_dict()
    state["tied"] = state["0.weight"]
    state["transposed"] = state["0.weight"].T
    state["part"] = state["0.weight"][1:, 1:]
    state["empty"] = torch.zeros(0, 5)
    state["parameter"] = nn.Parameter(torch.ones(2))
    found = read(save(tmp_path / "m", state, zipped=zipped))
    assert found.keys() == state.keys()
    assert all(np.array_equal(found[name], value.detach().numpy()) for name, value in state.items())


class Harmful:
    """A value whose pickle names a function to call."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("called",)


@FORMATS
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"a": Harmful()}, "refused name __builtin__.print|refused name builtins.print"),
        ({"a": torch.zeros(2).to_sparse()}, "refused name torch"),
        ({"a": torch.zeros(2, dtype=torch.complex64)}, "refused storage"),
        ({"a": nn.Linear(1, 1)}, "refused name|refused operation|expected a storage"),
        ({1: torch.zeros(2)}, "refused key"),
        ([torch.zeros(2)], "expected a dictionary of tensors"),
    ],
)
def test_everything_but_dense_tensors_by_name_is_refused(
    content: object, problem: str, zipped: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path / "m", content, zipped=zipped)
    with pytest.raises(PickledError, match=problem):
        read(path)
    assert capsys.readouterr().out == ""


@FORMATS
def test_a_tensor_that_repeats_values_is_refused(zipped: bool, tmp_path: Path) -> None:
    path = save(tmp_path / "m", {"a": torch.zeros(1).expand(1 << 40)}, zipped=zipped)
    assert refusal(path) == "a: reaches beyond its storage"


def test_a_nested_tuple_as_a_key_is_refused_at_once(tmp_path: Path) -> None:
    """Its hash would take time exponential in the depth."""
    nested = b"\x80\x02})" + b"q\x00h\x00\x86" * 60 + b"K\x01s."
    with pytest.raises(PickledError, match="refused key"):
        Interpreter(io.BytesIO(nested)).load()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"\x80\x02.", b"\x80\x02}", pickle.dumps({"a": 1}), b"PK", b"not a pickle"])
def test_a_file_that_is_none_of_pytorch_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(content)
    with pytest.raises((PickledError, ValueError)):
        read(tmp_path / "m")


def test_a_storage_of_another_size_than_stated_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "m", {"a": torch.zeros(4)})
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content[:-4] if name.endswith("data/0") else content)
    assert "12 bytes, expected 4 of float32" in refusal(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A checkpoint in both formats."""
    folder = tmp_path_factory.mktemp("pickled")
    state = OrderedDict(a=torch.randn(3, 4), b=torch.arange(5), c=nn.Parameter(torch.ones(2)))
    zipped, legacy = (save(folder / str(kind), state, zipped=kind).read_bytes() for kind in (True, False))
    return zipped, legacy


@settings(max_examples=300)
@given(st.data())
def test_a_mutated_file_is_read_or_refused(files: tuple[bytes, bytes], data: st.DataObject) -> None:
    """Nothing but an exception of Python, which the import reports in one line."""
    content = bytearray(data.draw(st.sampled_from(files)))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    _read_or_refuse(bytes(content[: data.draw(st.integers(len(content) // 2, len(content)))]))


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_pickle_is_read_or_refused(content: bytes) -> None:
    with suppress(PickledError, UnicodeDecodeError, OverflowError, MemoryError):
        Interpreter(io.BytesIO(content)).load()


def _read_or_refuse(content: bytes) -> None:
    with TemporaryFile() as file:
        file.write(content)
        file.flush()
        try:
            found = read_pickled(cast("BufferedReader", file))
        except Exception:  # noqa: BLE001 - damaged archives raise errors of any type, which the import converts
            return
    assert all(value.nbytes <= len(content) * 4 for value in found.values() if isinstance(value, np.ndarray))
