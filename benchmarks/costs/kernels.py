"""Measures products, steps, or a sentence: `python -m benchmarks.costs.kernels [kernels | steps [SHAPE] | lone]`."""

import argparse
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from dragoman.serve.native import build

SHAPES = ("small", "included", "tiny", "base", "opus-mt")


def main() -> None:
    """Compiles a program of this folder with the objects of the library, and runs it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.costs.kernels",
        description="Measures 8-bit kernels with the best instruction set, or that of DRAGOMAN_INSTRUCTIONS.",
        epilog="kernels: products; steps: decoder steps with and without lists; lone: a sentence of the small model.",
    )
    parser.add_argument("program", nargs="?", choices=["kernels", "steps", "lone"], default="kernels")
    parser.add_argument("shape", nargs="?", choices=SHAPES, help="of steps; all of them by default")
    options = parser.parse_args()
    if options.shape is not None and options.program != "steps":
        parser.error(f"shape: expected none with {options.program}, got {options.shape}")
    if (family := build.machine()) != "x86_64":
        parser.exit(1, f"benchmarks.costs.kernels: expected a processor of x86_64, got {family}\n")
    try:
        run(options.program, [options.shape] if options.shape else [])
    except (build.BuildError, subprocess.CalledProcessError) as error:
        parser.exit(1, f"benchmarks.costs.kernels: {error}\n")


def run(program: str, arguments: list[str]) -> None:
    """Compiles a program and runs it. Raises BuildError or CalledProcessError."""
    compiler = build.required_compiler()
    headers = build.digest(path.read_bytes() for path in sorted(build.SOURCES.rglob("*.hpp")))
    own = build.digest([headers.encode(), Path(__file__).with_name("rows.hpp").read_bytes()])
    shared = [*compiler, *build.OPTIONS, *build.WARNINGS]
    sources = [(build.SOURCES / "kernels/registry.cpp", headers), (Path(__file__).with_name(f"{program}.cpp"), own)]
    objects = [build.compile_object(source, shared, seen, build.OBJECTS) for source, seen in sources]
    for name, flags in build.INSTRUCTION_SETS["x86_64"].items():
        command = [*shared, f"-DDRAGOMAN_SET={name}", *flags]
        objects.append(build.compile_object(build.SOURCES / build.KERNELS, command, headers, build.OBJECTS))
    with TemporaryDirectory() as folder:
        file = Path(folder) / program
        subprocess.run([*compiler, *map(str, objects), "-o", str(file)], check=True)
        subprocess.run([file, *arguments], check=True)


if __name__ == "__main__":
    main()
