"""Files of safetensors, read without the library: every type, and files that are damaged."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from dragoman.export.imports.safe import read_safetensors

TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int16, torch.uint8, torch.bool)


def header(content: str, data: bytes = b"") -> bytes:
    return len(content).to_bytes(8, "little") + content.encode() + data


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_tensors_of_every_type_are_those_of_pytorch(kind: torch.dtype, tmp_path: Path) -> None:
    tensors = {"b": (torch.randn(3, 4) * 9).to(kind), "a": torch.ones(2).to(kind), "empty": torch.zeros(0, 5).to(kind)}
    save_file(tensors, tmp_path / "m", {"format": "pt"})
    with (tmp_path / "m").open("rb") as file:
        found = read_safetensors(file)
    assert found.keys() == tensors.keys()
    for name, value in tensors.items():
        assert np.array_equal(found[name].read(), (value.float() if kind == torch.bfloat16 else value).numpy())


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "damaged: a header of 0 bytes"),
        ((1 << 60).to_bytes(8, "little"), "damaged: a header of"),
        (header("[]"), "dict"),
        (header("{"), "JSON"),
        (header('{"a": 1}'), "a"),
        (header('{"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}', b"1"), "a: type F4: expected one of"),
        (header('{"a": {"dtype": "I8", "shape": [2], "data_offsets": [0, 1]}}', b"1"), "damaged: a: bytes 0 to 1"),
        (header('{"a": {"dtype": "I8", "shape": [1], "data_offsets": [1, 2]}}', b"12"), "damaged: a: bytes 1 to 2"),
        (header('{"a": {"dtype": "I8", "shape": [1], "data_offsets": [0, 1]}}', b"12"), "damaged: 7. bytes, expected"),
        (header('{"a": {"dtype": "I8", "shape": [-1, -1], "data_offsets": [0, 1]}}', b"1"), "expected"),
        (header('{"a": {"dtype": "I8", "shape": [9], "data_offsets": [0, 9]}}', b"1"), "expected"),
    ],
)
def test_a_damaged_file_is_refused(content: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(content)
    with (tmp_path / "m").open("rb") as file, pytest.raises(ValueError, match=problem):
        read_safetensors(file)
