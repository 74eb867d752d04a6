"""Prints the speed of 8-bit products on a processor with AVX512-VNNI or AMX: `python -m benchmarks.costs.kernels`."""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from dragoman.serve.native.build import (
    INSTRUCTION_SETS,
    KERNELS,
    OBJECTS,
    OPTIONS,
    SOURCES,
    WARNINGS,
    compile_object,
    digest,
    find_compiler,
)


def main() -> None:
    """Compiles `kernels.cpp` with the objects of the library, and runs it."""
    compiler = find_compiler()
    assert compiler is not None
    headers = digest(path.read_bytes() for path in sorted(SOURCES.rglob("*.hpp")))
    shared, sets = [*compiler, *OPTIONS, *WARNINGS], INSTRUCTION_SETS["x86_64"]
    jobs = [(SOURCES / KERNELS, [f"-DDRAGOMAN_SET={name}", *flags]) for name, flags in sets.items()]
    jobs += [(SOURCES / "kernels/registry.cpp", []), (Path(__file__).with_suffix(".cpp"), sets["avx512"])]
    objects = [compile_object(source, [*shared, *flags], headers, OBJECTS) for source, flags in jobs]
    with TemporaryDirectory() as folder:
        program = Path(folder) / "kernels"
        subprocess.run([*compiler, *map(str, objects), "-o", str(program)], check=True)
        subprocess.run([program], check=True)


if __name__ == "__main__":
    main()
