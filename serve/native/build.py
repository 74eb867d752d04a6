"""Compiles the native library: `python -m dragoman.serve.native.build`. Needs nothing but a C++ compiler.

The kernels are compiled once for each instruction set of the processor's family, with options of their own. The
library chooses among them when it is loaded, so that a build runs on every processor of the family.
"""

import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).parent / "src"
LIBRARY = Path(__file__).parent / "libdragoman.so"
# Compiled objects by the hash of all that they depend on.
OBJECTS = Path(__file__).resolve().parents[2] / "build" / "native"
OPTIONS = ["-std=c++17", "-O3", "-fPIC", "-pthread", "-ffp-contract=off", "-fvisibility=hidden"]
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion"]
# The file that is compiled for each instruction set; DRAGOMAN_SET names its namespace.
KERNELS = Path("kernels/instance.cpp")
AVX512 = [
    *("-mavx2", "-mfma", "-mprefer-vector-width=512"),
    *(f"-mavx512{part}" for part in ("f", "bw", "dq", "vl", "vnni")),
]
INSTRUCTION_SETS = {
    "x86_64": {
        "portable": [],
        "avx2": ["-mavx2", "-mfma"],
        "avx_vnni": ["-mavx2", "-mfma"],
        "avx512": AVX512,
        "amx": [*AVX512, "-mamx-tile", "-mamx-int8"],
    },
    "aarch64": {"portable": [], "neon": ["-march=armv8.2-a+dotprod"]},
}
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
# Supported systems, as Zig names them. Without a target it compiles for the processor at hand alone.
ZIG_TARGETS = {"linux": "linux-gnu.2.28", "darwin": "macos"}
# Zig has names of its own for processors.
ZIG_OPTIONS = {"-march=armv8.2-a+dotprod": "-mcpu=generic+v8_2a+dotprod"}
# Functions that the library exports; all others stay its own.
EXPORTS = "{ global: RegisterCustomOps; dragoman_*; local: *; };\n"
# Asks for the standard library of C++17, and for vectors as GCC 12 and Clang have them. For macOS, Zig links no library
# that exports nothing.
SMALL_PROGRAM = """#include <string_view>
typedef float Lanes __attribute__((vector_size(16)));
__attribute__((visibility("default"))) int main() {
  return std::string_view().size() != 0 || __builtin_shufflevector(Lanes{}, Lanes{}, 0, 5, 2, 7)[0] != 0;
}
"""


class BuildError(RuntimeError):
    """The library cannot be compiled here; the message gives the reason."""


def machine() -> str:
    """Returns the processor's family as `INSTRUCTION_SETS` names it, or its unknown name."""
    # The variable names another platform, such as linux-aarch64, as builds of CPython and `sysconfig` use it.
    name = os.environ.get("_PYTHON_HOST_PLATFORM", platform.machine()).rpartition("-")[2].lower()
    return MACHINES.get(name, name)


def zig_compiler() -> list[str] | None:
    """Returns the command of the compiler in the package ziglang; None if it is not installed."""
    if importlib.util.find_spec("ziglang") is None or sys.platform not in ZIG_TARGETS:
        return None
    target = f"{machine()}-{ZIG_TARGETS[sys.platform]}"
    return [sys.executable, "-m", "ziglang", "c++", "-target", target, "-fno-sanitize=undefined"]


def find_compiler() -> list[str] | None:
    """Returns the command of a C++17 compiler: $CXX, the system's, or else that of ziglang; None without any."""
    given = os.environ.get("CXX")
    named = [shlex.split(given)] if given else [["c++"], ["g++"], ["clang++"]]
    candidates = [command for command in named if shutil.which(command[0])]
    return next(filter(_works, [*candidates, *filter(None, [zig_compiler()])]), None)


def required_compiler() -> list[str]:
    """Returns what `find_compiler` finds; raises BuildError if it finds none."""
    compiler = find_compiler()
    if compiler is None:
        raise BuildError("there is no C++17 compiler: install g++ or clang++, or name one in CXX")
    return compiler


def _works(compiler: Sequence[str]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.cpp"
        program.write_text(SMALL_PROGRAM, encoding="ascii")
        # Linked as the library is: for other options, Zig would compile all of the standard library once more.
        command = [*compiler, *OPTIONS, "-shared", "-s", str(program), "-o", str(Path(folder) / "program")]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0  # noqa: S603 - a compiler


def build(
    out: Path = LIBRARY, *, options: Sequence[str] = (), objects: Path = OBJECTS, system: str | None = None
) -> Path:
    """Compiles the library and returns its path.

    Args:
        options: further options of the compiler and the linker.
        objects: folder of compiled objects, which are reused while nothing that they depend on changes.
        system: the one that $CXX compiles for, as `sys.platform` names it, which may be one without support.

    Raises BuildError if there is no compiler, or it fails.
    """
    sets = INSTRUCTION_SETS.get(machine())
    if sets is None or (system is None and sys.platform not in ZIG_TARGETS):
        raise BuildError(
            f"{sys.platform} on {machine()}: expected {' or '.join(ZIG_TARGETS)} on {' or '.join(INSTRUCTION_SETS)}"
        )
    compiler = required_compiler()
    shared = [*compiler, *OPTIONS, *WARNINGS, *options]
    plain = [path for path in sorted(SOURCES.rglob("*.cpp")) if path != SOURCES / KERNELS]
    jobs = [(path, shared) for path in plain]
    for name, flags in sets.items():
        own = [ZIG_OPTIONS.get(flag, flag) for flag in flags] if "ziglang" in compiler else flags
        jobs.append((SOURCES / KERNELS, [*shared, f"-DDRAGOMAN_SET={name}", *own]))
    headers = digest(path.read_bytes() for path in sorted(SOURCES.rglob("*.hpp")))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compiled = list(pool.map(lambda job: compile_object(job[0], job[1], headers, objects), jobs))
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        library, exports = Path(folder) / out.name, Path(folder) / "exports"
        exports.write_text(EXPORTS, encoding="ascii")
        hiding = ["-s", f"-Wl,--version-script={exports}", "-Wl,-z,defs"] if (system or sys.platform) == "linux" else []
        _run([*compiler, *OPTIONS, *options, "-shared", *hiding, *map(str, compiled), "-o", str(library)])
        library.replace(out)  # at once, so that a process that has loaded the old one keeps it
    return out


def compile_object(source: Path, command: Sequence[str], headers: str, objects: Path) -> Path:
    """Returns the object of a source, compiled now or before."""
    parts = [source.read_bytes(), headers.encode(), "\0".join(command).encode()]
    compiled = objects / f"{source.stem}-{digest(parts)}.o"
    if not compiled.exists():
        objects.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=objects) as folder:
            new = Path(folder) / compiled.name
            _run([*command, "-I", str(SOURCES), "-c", str(source), "-o", str(new)])
            new.replace(compiled)
    return compiled


def digest(parts: Iterable[bytes]) -> str:
    """Returns a hash of all parts in order."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()[:32]


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - a compiler
    if done.returncode != 0:
        raise BuildError(f"{shlex.join(command)}\n{done.stderr}")


if __name__ == "__main__":
    try:
        print(build())
    except BuildError as error:
        raise SystemExit(f"dragoman.serve.native.build: {error}") from error
