"""The build finds a compiler, explains its absence, and makes a library that runs on every processor of the family."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.serve.native import build as build_module
from dragoman.serve.native.build import INSTRUCTION_SETS, LIBRARY, BuildError, build, find_compiler

NM = shutil.which("nm") or ""


def test_without_a_compiler_the_reason_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(build_module, "zig_compiler", lambda: None)
    assert find_compiler() is None
    with pytest.raises(BuildError, match=re.escape("there is no C++17 compiler: install g++ or clang++")):
        build(tmp_path / "library.so", objects=tmp_path)


def test_a_compiler_that_fails_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("c++", "g++"):
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\nexit {int(name == 'c++')}\n")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert find_compiler() == ["g++"]
    monkeypatch.setenv("CXX", "c++ -O9")
    monkeypatch.setattr(build_module, "zig_compiler", lambda: None)
    assert find_compiler() is None


def test_an_error_of_the_compiler_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.cpp").write_text("#error something is wrong\n")
    monkeypatch.setattr(build_module, "SOURCES", tmp_path)
    monkeypatch.setattr(build_module, "INSTRUCTION_SETS", {build_module.machine(): {}})
    with pytest.raises(BuildError, match="something is wrong"):
        build(tmp_path / "library.so", objects=tmp_path)


def test_an_unknown_processor_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_module, "machine", lambda: "pdp11")
    with pytest.raises(BuildError, match="on pdp11: expected linux or darwin on x86_64 or aarch64"):
        build()


def test_nothing_is_compiled_for_the_processor_at_hand_alone() -> None:
    options = [
        *build_module.OPTIONS,
        *(flag for sets in INSTRUCTION_SETS.values() for f in sets.values() for flag in f),
    ]
    assert not [option for option in options if "native" in option or "mtune" in option or "fast-math" in option]
    assert "-ffp-contract=off" in options


@pytest.mark.skipif(sys.platform != "linux" or not NM, reason="needs nm, which lists symbols of ELF files")
def test_the_library_exports_only_its_interface() -> None:
    listed = subprocess.run([NM, "-D", "--defined-only", LIBRARY], check=True, capture_output=True, text=True).stdout
    names = {line.split()[-1] for line in listed.splitlines()}
    assert "RegisterCustomOps" in names
    assert all(name == "RegisterCustomOps" or name.startswith("dragoman_") for name in names)
