"""A system whose turns cost nothing: it writes down in a file that it was started, and what it was asked to do."""

from collections.abc import Callable
from pathlib import Path

from benchmarks.harness.process import work


class TurnTaker:
    """Makes as many tokens as it is told."""

    def __init__(self, name: str, log: str) -> None:
        self._name = name
        self._log = Path(log)
        self._write("starts")

    def plan(self, tokens: int) -> Callable[[int], int]:
        self._write(str(tokens))
        return lambda times: times * tokens

    def _write(self, what: str) -> None:
        with self._log.open("a", encoding="utf-8") as file:
            file.write(f"{self._name} {what}\n")


if __name__ == "__main__":
    work(TurnTaker)
