"""The committed gRPC code equals the code generated from the contracts."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from dragoman.protos import translation_pb2
from dragoman.protos.translation_pb2 import TranslateRequest
from tests.support.paths import ROOT

CONTRACTS = ("translation", "inference")
GENERATED = [f"{name}_{kind}" for name in CONTRACTS for kind in ("pb2.py", "pb2.pyi", "pb2_grpc.py", "pb2_grpc.pyi")]


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with code freshly generated from the contracts."""
    out = tmp_path_factory.mktemp("protos")
    outputs = [f"--{kind}_out={out}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    plugins = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    contracts = [f"protos/{contract}.proto" for contract in CONTRACTS]
    includes = ["-I.", f"-I{sysconfig.get_path('purelib')}"]
    command = [sys.executable, "-m", "grpc_tools.protoc", *includes, *outputs, *contracts]
    subprocess.run(command, cwd=ROOT, env=plugins, check=True, capture_output=True)
    for path in (out / "protos").iterdir():
        text = path.read_text().replace("\nfrom protos ", "\nfrom dragoman.protos ")
        path.write_text(text.replace(" 'protos.", " 'dragoman.protos."))
    for path in (out / "protos").glob("*_pb2_grpc.py*"):
        path.write_text(path.read_text().replace("\nfrom protos ", "\nfrom dragoman.protos "))
    return out / "protos"


@pytest.mark.parametrize("name", GENERATED)
def test_generated_code_is_up_to_date(generated: Path, name: str) -> None:
    assert (ROOT / "protos" / name).read_text() == (generated / name).read_text(), "run `make protos` and commit"


def test_a_message_names_the_module_that_pickle_imports() -> None:
    """Ray pickles messages."""
    assert TranslateRequest.__module__ == translation_pb2.__name__
