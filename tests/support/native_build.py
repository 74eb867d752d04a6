"""Compiles C++ for the tests, once for each content of the sources, with the objects of the library if they fit."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

from dragoman.serve.native.build import OBJECTS, OPTIONS, SOURCES, WARNINGS, compile_object, digest, find_compiler
from tests.support.paths import ROOT

LOOP = SOURCES / "loop"
TEST_LOOP = ROOT / "tests/serve/native/loop"
_find_compiler = cache(find_compiler)
STRICT = ("-std=c++17", "-pthread", "-fPIC", "-ffp-contract=off", "-Wall", "-Wextra", "-Wpedantic", "-Werror")

needs_compiler = pytest.mark.skipif(shutil.which(os.environ.get("CXX", "g++")) is None, reason="no C++ compiler")


def build(name: str, sources: Iterable[Path], options: Sequence[str], link: Sequence[str] = ()) -> Path:
    """Compiles sources and links them into a program or library; later calls return the file of the first."""
    compiler = _find_compiler()
    assert compiler is not None
    headers = digest(path.read_bytes() for path in sorted(SOURCES.rglob("*.hpp")))
    # Those of the tests include headers of their own.
    more_headers = digest([headers.encode(), *(path.read_bytes() for path in sorted(TEST_LOOP.glob("*.hpp")))])

    def compile_one(path: Path) -> Path:
        if SOURCES in path.parents:
            return compile_object(path, [*compiler, *options], headers, OBJECTS)
        return compile_object(path, [*compiler, *options], more_headers, OBJECTS)

    OBJECTS.mkdir(parents=True, exist_ok=True)
    with (OBJECTS / "tests.lock").open("w") as lock, ThreadPoolExecutor(os.cpu_count()) as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may build the same
        objects = [*map(str, pool.map(compile_one, sorted(sources)))]
        target = OBJECTS / f"{name}-{digest(item.encode() for item in [*objects, *link])}"
        if not target.exists():
            command = [*compiler, *options, *link, *objects, "-o", f"{target}.new"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            Path(f"{target}.new").replace(target)
    return target


def loop_library() -> Path:
    """Returns a library with the loop, its fake model and the functions that step it by hand."""
    return build("loop.so", [*LOOP.glob("*.cpp"), TEST_LOOP / "driver.cpp"], [*OPTIONS, *WARNINGS], ["-shared"])
