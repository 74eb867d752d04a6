"""The kernels of all instruction sets compute what scalar code does, the same bits on every processor.

The checks are a C++ program, `kernels_test.cpp`; the tests build and run it in several ways.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from serve.native.build import INSTRUCTION_SETS, KERNELS, OPTIONS, SOURCES, find_compiler, machine

pytestmark = pytest.mark.timeout(1200)  # compilers share their cores with other tests

HERE = Path(__file__).parent
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
SANITIZERS = ["-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
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


@pytest.fixture(scope="session")
def program(compiler: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_program(tmp_path_factory.mktemp("kernels"), compiler, machine(), ["-O2"])


@pytest.fixture(scope="session")
def report(program: Path) -> str:
    return run(program)


def vnni_substitute() -> bool:
    """Whether AVX512 executes the instructions of AVX-VNNI here, in another encoding, and nothing else does."""
    cpu = Path("/proc/cpuinfo")
    flags = cpu.read_text().split() if cpu.exists() else []
    return machine() == "x86_64" and "avx512_vnni" in flags and "avx_vnni" not in flags


def build_program(folder: Path, compiler: Sequence[str], family: str, options: Sequence[str]) -> Path:
    """Compiles the kernels of a family of processors with the test program, and returns the program."""
    replaced = family == machine() and vnni_substitute()
    test = ["-DDRAGOMAN_TEST_AVX_VNNI"] if replaced else []
    jobs = [(SOURCES / "kernels/registry.cpp", "registry", WARNINGS), (HERE / "kernels_test.cpp", "test", test)]
    for name, flags in INSTRUCTION_SETS[family].items():
        encoding = ['-DDRAGOMAN_AVX_VNNI=""'] if replaced and name == "avx_vnni" else []
        jobs.append((SOURCES / KERNELS, name, [*WARNINGS, f"-DDRAGOMAN_SET={name}", *flags, *encoding]))
    shared = [*compiler, *OPTIONS, *options, "-I", str(SOURCES), "-I", str(HERE)]

    def compile_one(job: tuple[Path, str, list[str]]) -> str:
        source, name, flags = job
        compiled = str(folder / f"{name}.o")
        run(*shared, *flags, "-c", source, "-o", compiled)
        return compiled

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, jobs))
    run(*compiler, *options, *objects, "-o", folder / "program")
    return folder / "program"


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


def test_kernels_touch_only_their_arguments(compiler: list[str], report: str, tmp_path: Path) -> None:
    probe = tmp_path / "probe.cpp"
    probe.write_text("int main() {}\n")
    linked = [*compiler, *SANITIZERS, str(probe), "-o", str(tmp_path / "probe")]
    if subprocess.run(linked, check=False, capture_output=True).returncode != 0:
        pytest.skip("the compiler has no sanitizers")
    checked = run(build_program(tmp_path, compiler, machine(), ["-O1", *SANITIZERS]))
    assert checked == report


@pytest.mark.skipif(sys.platform != "linux", reason="the emulator runs on Linux")
@pytest.mark.skipif(ARM_COMPILER is None, reason="aarch64-linux-gnu-g++ is not installed")
@pytest.mark.skipif(ARM_EMULATOR is None, reason="qemu-aarch64 is not installed")
def test_arm_kernels_compute_the_same_bits(report: str, tmp_path: Path) -> None:
    assert ARM_COMPILER is not None
    assert ARM_EMULATOR is not None
    program = build_program(tmp_path, [ARM_COMPILER], "aarch64", ["-O2", "-static"])
    emulated = run(ARM_EMULATOR, program)
    assert emulated.endswith("tested portable\ntested neon\n0 failures\n")
    assert digests(emulated) == digests(report)


@pytest.mark.skipif(NM is None, reason="nm is not installed")
def test_an_instruction_set_leaves_no_inline_function_to_others(program: Path) -> None:
    assert NM is not None
    for name in INSTRUCTION_SETS[machine()]:
        listed = run(NM, "--defined-only", "--extern-only", program.parent / f"{name}.o")
        assert [line.split()[-1] for line in listed.splitlines()] == [f"_ZN8dragoman{len(name)}{name}8kKernelsE"]
