"""Measures products, steps, or a sentence: `python -m benchmarks.costs.kernels [kernels | steps [SHAPE] | lone]`."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from dragoman.serve.native import build


def main(program: str = "kernels", *arguments: str) -> None:
    """Compiles a program of this folder with the objects of the library, and runs it."""
    compiler = build.find_compiler() or ["c++"]
    headers = build.digest(path.read_bytes() for path in sorted(build.SOURCES.rglob("*.hpp")))
    shared, sets = [*compiler, *build.OPTIONS, *build.WARNINGS], build.INSTRUCTION_SETS["x86_64"]
    jobs = [(build.SOURCES / build.KERNELS, [f"-DDRAGOMAN_SET={name}", *flags]) for name, flags in sets.items()]
    own = sets["avx512"] if program == "kernels" else []
    jobs += [(build.SOURCES / "kernels/registry.cpp", []), (Path(__file__).with_name(f"{program}.cpp"), own)]
    objects = [build.compile_object(source, [*shared, *flags], headers, build.OBJECTS) for source, flags in jobs]
    with TemporaryDirectory() as folder:
        file = Path(folder) / program
        subprocess.run([*compiler, *map(str, objects), "-o", str(file)], check=True)
        subprocess.run([file, *arguments], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
