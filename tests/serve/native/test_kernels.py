"""The kernels of all instruction sets compute what scalar code does, the same bits on every processor.

The checks are a C++ program, `kernels_test.cpp`; the tests build and run it in several ways.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from dragoman.serve.native import build
from dragoman.serve.native.build import INSTRUCTION_SETS, KERNELS, OPTIONS, SOURCES, find_compiler, machine

pytestmark = pytest.mark.timeout(1200)  # compilers share their cores with other tests

HERE = Path(__file__).parent
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
SANITIZERS = ["-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
# Checks as calls: the compiler takes half the time. Clang would warn that it does not know the parameter.
OUTLINED = ["--param=asan-instrumentation-with-call-threshold=0", "-Wno-unused-command-line-argument"]
ARM_COMPILER = shutil.which("aarch64-linux-gnu-g++")
ARM_EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
NM = shutil.which("nm")


@pytest.fixture(scope="session", autouse=True)
def _library() -> None:
    """The program contains the kernels: it needs no library."""


@pytest.fixture(scope="session")
def compiler() -> list[str]:
    command = find_compiler()
    if command is None:
        pytest.skip("there is no C++ compiler")
    return command


@dataclass(frozen=True)
class Program:
    """The compiled checks, and the object of the kernels of each instruction set."""

    path: Path
    objects: dict[str, Path]


@pytest.fixture(scope="session")
def program(compiler: list[str], tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The checks of the library's own objects."""
    return build_program(tmp_path_factory.mktemp("kernels"), compiler, machine(), build.WARNINGS, cache=build.OBJECTS)


@pytest.fixture(scope="session")
def report(program: Program) -> str:
    return run(program.path)


def vnni_substitute() -> bool:
    """Whether AVX512 executes the instructions of AVX-VNNI here, in another encoding, and nothing else does."""
    cpu = Path("/proc/cpuinfo")
    flags = cpu.read_text().split() if cpu.exists() else []
    return machine() == "x86_64" and "avx512_vnni" in flags and "avx_vnni" not in flags


def build_program(
    folder: Path,
    compiler: Sequence[str],
    family: str,
    options: Sequence[str],
    *,
    sanitizers: Sequence[str] = (),
    cache: Path | None = None,
) -> Program:
    """Compiles the kernels of a family, which sanitizers see, with the test program; a cache has earlier objects."""
    replaced = family == machine() and vnni_substitute()
    test = ["-I", str(HERE), *(["-DDRAGOMAN_TEST_AVX_VNNI"] if replaced else [])]
    jobs: dict[str, tuple[Path, list[str], Path | None]]
    jobs = {"registry": (SOURCES / "kernels/registry.cpp", [], cache), "test": (HERE / "kernels_test.cpp", test, None)}
    for name, flags in INSTRUCTION_SETS[family].items():
        encoding = ['-DDRAGOMAN_AVX_VNNI=""'] if replaced and name == "avx_vnni" else []
        jobs[name] = (SOURCES / KERNELS, [f"-DDRAGOMAN_SET={name}", *flags, *encoding, *sanitizers], cache)
    headers = build.digest(path.read_bytes() for path in sorted(SOURCES.rglob("*.hpp")))

    def compile_one(job: tuple[Path, list[str], Path | None]) -> Path:
        source, flags, objects = job
        return build.compile_object(source, [*compiler, *OPTIONS, *options, *flags], headers, objects or folder)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = dict(zip(jobs, pool.map(compile_one, jobs.values()), strict=True))
    run(*compiler, *options, *sanitizers, *objects.values(), "-o", folder / "program")
    return Program(folder / "program", objects)


def run(*command: str | Path) -> str:
    """Returns the standard output of a command that succeeds."""
    done = subprocess.run([*map(str, command)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
    return done.stdout


def digests(report: str) -> list[str]:
    return [line for line in report.splitlines() if line.startswith("digest ")]


def test_kernels_compute_what_scalar_code_does(report: str) -> None:
    assert report.endswith("\n0 failures\n")
    assert "tested portable\n" in report
    assert len(digests(report)) > 10


def test_kernels_use_only_their_arguments(compiler: list[str], report: str, tmp_path: Path, *, thorough: bool) -> None:
    if not thorough:
        pytest.skip("compiles for minutes: run with --thorough, as .ci/sanitize does")
    probe = tmp_path / "probe.cpp"
    probe.write_text("int main() {}\n")
    linked = [*compiler, *SANITIZERS, str(probe), "-o", str(tmp_path / "probe")]
    if subprocess.run(linked, check=False, capture_output=True).returncode != 0:
        pytest.skip("the compiler has no sanitizers")
    checked = build_program(tmp_path, compiler, machine(), WARNINGS, sanitizers=["-O1", *OUTLINED, *SANITIZERS])
    assert run(checked.path) == report


@pytest.mark.skipif(sys.platform != "linux", reason="the emulator runs on Linux")
@pytest.mark.skipif(ARM_COMPILER is None, reason="aarch64-linux-gnu-g++ is not installed")
@pytest.mark.skipif(ARM_EMULATOR is None, reason="qemu-aarch64 is not installed")
def test_arm_kernels_compute_the_same_bits(report: str, tmp_path: Path) -> None:
    assert ARM_COMPILER is not None
    assert ARM_EMULATOR is not None
    program = build_program(tmp_path, [ARM_COMPILER], "aarch64", ["-O2", "-static"])
    emulated = run(ARM_EMULATOR, program.path)
    assert emulated.endswith("tested portable\ntested neon\n0 failures\n")
    assert digests(emulated) == digests(report)


@pytest.mark.skipif(NM is None, reason="nm is not installed")
def test_an_instruction_set_leaves_no_inline_function_to_others(program: Program) -> None:
    assert NM is not None
    for name in INSTRUCTION_SETS[machine()]:
        listed = run(NM, "--defined-only", "--extern-only", program.objects[name])
        assert [line.split()[-1] for line in listed.splitlines()] == [f"_ZN8dragoman{len(name)}{name}8kKernelsE"]
