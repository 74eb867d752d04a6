"""The committed gRPC code is what the contract generates."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GENERATED = ("translation_pb2.py", "translation_pb2.pyi", "translation_pb2_grpc.py", "translation_pb2_grpc.pyi")


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with code freshly generated from the contract."""
    out = tmp_path_factory.mktemp("protos")
    outputs = [f"--{kind}_out={out}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    plugins = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", *outputs, "protos/translation.proto"]
    subprocess.run(command, cwd=ROOT, env=plugins, check=True, capture_output=True)
    return out / "protos"


@pytest.mark.parametrize("name", GENERATED)
def test_generated_code_is_up_to_date(generated: Path, name: str) -> None:
    assert (ROOT / "protos" / name).read_text() == (generated / name).read_text(), "run `make protos` and commit"
