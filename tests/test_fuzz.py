"""The fuzz harnesses hold for every stored input."""

import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.native_build import LOOP, STRICT, TEST_LOOP, build, needs_compiler
from tests.support.paths import ROOT

NATIVE = "record_reader"
CORPUS = ROOT / "fuzz" / "corpus"
INPUTS = [path for path in sorted(CORPUS.glob("*/*")) if path.parent.name != NATIVE]


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_harness_holds_for_a_stored_input(path: Path) -> None:
    import_module(f"fuzz.{path.parent.name}").check(path.read_bytes())


@needs_compiler
def test_the_native_harness_holds_for_its_stored_inputs() -> None:
    sources = [LOOP / "records.cpp", TEST_LOOP / "replay.cpp", ROOT / "fuzz" / f"{NATIVE}.cpp"]
    program = build("replay", sources, [*STRICT, "-O0"])
    paths = sorted((CORPUS / NATIVE).iterdir())
    assert paths
    subprocess.run([program, *paths], check=True)
