"""Compiles C++ for the tests, once for each content of the sources."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SOURCES = ROOT / "serve/native/src"
LOOP = SOURCES / "loop"
TEST_LOOP = ROOT / "tests/serve/native/loop"
FLAGS = ("-std=c++17", "-pthread", "-fPIC", "-ffp-contract=off", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
COMPILER = os.environ.get("CXX", "g++")

needs_compiler = pytest.mark.skipif(shutil.which(COMPILER) is None, reason="no C++ compiler")


def build(name: str, sources: Iterable[Path], flags: tuple[str, ...]) -> Path:
    """Compiles sources and links them into a program or library; later calls return the file of the first."""
    flags = (*FLAGS, "-I", str(SOURCES), *flags)
    files = sorted(sources)
    digest = hashlib.sha256(" ".join((COMPILER, *flags)).encode())
    for path in [*files, *sorted(LOOP.glob("*.hpp")), *sorted(TEST_LOOP.glob("*.hpp"))]:
        digest.update(path.read_bytes())
    folder = Path(tempfile.gettempdir()) / f"dragoman-native-{os.getuid()}"
    target = folder / f"{name}-{digest.hexdigest()[:16]}"
    if target.exists():
        return target
    folder.mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as parts:
        objects = [Path(parts) / f"{number}.o" for number in range(len(files))]
        compiling = [
            [COMPILER, *flags, "-c", str(file), "-o", str(part)] for file, part in zip(files, objects, strict=True)
        ]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(_run, compiling))
        built = Path(parts) / name
        _run([COMPILER, *flags, *map(str, objects), "-o", str(built)])
        built.replace(target)  # another process may build the same
    return target


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def loop_library() -> Path:
    """Returns a library with the loop, its fake model and the functions that step it by hand."""
    sources = [*LOOP.glob("*.cpp"), TEST_LOOP / "driver.cpp"]
    return build("loop.so", sources, ("-O1", "-g", "-shared", "-fvisibility=hidden"))
