"""Runs a harness with Atheris: `python -m fuzz NAME [OPTION ...] [FOLDER ...]`, with the arguments of libFuzzer."""

import sys
from importlib import import_module

import atheris


def main(name: str, arguments: list[str]) -> None:
    """Fuzzes until libFuzzer's limits; the process ends there, or at the first finding with another status than 0."""
    with atheris.instrument_imports(include=["dragoman"]):
        check = import_module(f"fuzz.{name}").check
    atheris.Setup([name, *arguments], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
