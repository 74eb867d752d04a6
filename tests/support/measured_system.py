"""A system without computation: it logs its start and its tasks to a file."""

from collections.abc import Callable
from pathlib import Path


class MeasuredSystem:
    """Returns the requested number of tokens."""

    def __init__(self, name: str, log: str) -> None:
        self._name = name
        self._log = Path(log)
        self._write("starts")

    def prepare(self, tokens: int) -> Callable[[], int]:
        self._write(str(tokens))
        return lambda: tokens

    def _write(self, what: str) -> None:
        with self._log.open("a", encoding="utf-8") as file:
            file.write(f"{self._name} {what}\n")
