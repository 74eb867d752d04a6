"""The library is found, names its instruction set, and sessions run without it where it cannot be used."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dragoman.export.inspect.processor import describe_processor
from dragoman.serve.native import library
from dragoman.serve.native.library import InstructionsError, instructions, library_path, why_no_library
from dragoman.serve.runtime import onnx_runtime
from tests.support.native_graphs import choose_graph
from tests.support.native_sessions import open_graph
from tests.support.paths import ROOT

# Programs find the tests, and the package where this process found it.
PYTHON_PATH = {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
# Prints a digest of what all operators compute.
PROGRAM = """
import hashlib, numpy as np
from tests.support.native_reference import Shape, Transformer
from tests.support.native_sessions import NativeModel
digest = hashlib.sha256()
for precision in ("fp32", "int8"):
    for activation in ("relu", "gelu", "silu", "swiglu"):
        shape = Shape(precision=precision, activation=activation, heads=3, d_model=51, d_ff=70, vocabulary=300)
        native = NativeModel(Transformer(shape))
        native.encode([[1, 2, 3], [4] * 20], [0, 1])
        for position in range(20):
            result = native.step([5, position], [position] * 2, [1, 2], [0, 1], [3, 20], best_count=9)
            digest.update(b"".join(result[0] + result[1]))
        digest.update(b"".join(array.tobytes() for array in native.source + native.target))
print(digest.hexdigest())
"""


@pytest.fixture(autouse=True)
def _own_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRAGOMAN_INSTRUCTIONS", raising=False)


def available_sets() -> list[str]:
    """Returns the instruction sets of this processor, which the error about a wrong one lists."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAGOMAN_INSTRUCTIONS", "none of them")
        with pytest.raises(InstructionsError) as wrong:
            instructions()
    return str(wrong.value).partition("one of ")[2].partition(", got")[0].split(", ")


def test_the_best_instruction_set_is_chosen_and_each_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    names = available_sets()
    assert names[0] == "portable"
    assert instructions() == names[-1]
    for name in names:
        monkeypatch.setenv("DRAGOMAN_INSTRUCTIONS", name)
        assert instructions() == name
        assert name in describe_processor()


def test_every_instruction_set_computes_the_same_bits() -> None:
    def digest(name: str) -> str:
        environment = os.environ | PYTHON_PATH | {"DRAGOMAN_INSTRUCTIONS": name}
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True)
        return done.stdout.decode()

    assert len({digest(name) for name in available_sets()}) == 1


def test_a_missing_instruction_set_is_an_error_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_INSTRUCTIONS", "mmx")
    with pytest.raises(Exception, match=r"DRAGOMAN_INSTRUCTIONS: expected one of portable.*, got mmx"):
        open_graph(choose_graph())


def twice_graph() -> bytes:
    """Returns a graph of a Choose without logits that a function of the graph computes: log_sums = 2 * logits."""
    body = [
        helper.make_node("Add", ["logits", "logits"], ["log_sums"]),
        helper.make_node("Identity", ["logits"], ["best_scores"]),
        helper.make_node("Cast", ["logits"], ["best_ids"], to=TensorProto.INT64),
    ]
    outputs = ["log_sums", "best_scores", "best_ids"]
    opsets = [helper.make_opsetid("", 21)]
    function = helper.make_function("dragoman", "Choose", ["logits", "best_count"], outputs, body, opsets)
    model = onnx.load_from_string(choose_graph())
    model.functions.append(function)
    return model.SerializeToString()


def computed() -> str:
    """Returns what computes a graph that holds its operator as a function too."""
    feeds = {"logits": np.zeros((1, 1), np.float32), "best_count": np.array([1], np.int32)}
    return {1: "kernel", 2: "function"}[open_graph(twice_graph()).run(["log_sums"], feeds)[0].ndim]


def test_the_function_of_a_graph_stands_in_for_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    assert computed() == "kernel"
    monkeypatch.setenv("DRAGOMAN_INSTRUCTIONS", "fallback")
    assert computed() == "function"
    assert why_no_library() == "DRAGOMAN_INSTRUCTIONS is fallback"
    assert instructions() == "fallback"


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "does not exist"), (b"", "cannot be loaded"), (b"no library", "cannot be loaded")]
)
def test_without_a_usable_library_functions_run(
    content: bytes | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "libdragoman.so"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr(library, "_LIBRARY", path)
    assert library_path() is None
    assert reason in why_no_library()
    assert computed() == "function"
    assert reason in describe_processor()


# Old ONNX Runtime's table has no function that a new library calls, and a later major version may have any.
STRANGERS = {
    "1.31.1": "a function is missing",
    "1.22.9": "1.22.9: expected version 1.23",
    "2.0.0": "2.0.0: expected",
    "nonsense": "nonsense: expected",
}


@pytest.mark.parametrize("version", STRANGERS)
def test_another_version_of_onnx_runtime_is_refused_by_its_name(version: str) -> None:
    """A program passes a table of functions of its own, as ONNX Runtime does."""
    program = f"""
import ctypes
from dragoman.serve.native.library import library_path
messages = []
create_status = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)(lambda _, m: messages.append(m) or 1)
table = (ctypes.c_void_p * 400)(ctypes.cast(create_status, ctypes.c_void_p).value)
get_api = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(lambda _: ctypes.addressof(table))
get_version = ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: ctypes.addressof(name))
name = ctypes.create_string_buffer({version.encode()!r})
base = (ctypes.c_void_p * 2)(*(ctypes.cast(f, ctypes.c_void_p).value for f in (get_api, get_version)))
register = ctypes.CDLL(str(library_path())).RegisterCustomOps
register.restype, register.argtypes = ctypes.c_void_p, [ctypes.c_void_p] * 2
assert register(None, base) == 1
print(messages[0].decode())
"""
    environment = os.environ | PYTHON_PATH
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
    assert STRANGERS[version] in done.stdout


def test_a_rejected_library_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_runtime, "_why_rejected", lambda _: "a strange version")
    assert computed() == "function"
    assert "a strange version" in describe_processor()
