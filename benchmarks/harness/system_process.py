"""A system in a process of its own, seen from outside: it is started, given turns and stopped.

A process of its own gives a system all of its memory figures, and keeps the libraries of systems apart. What happens
inside is `benchmarks.harness.process`. Called by `benchmarks.harness.rounds`.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from tempfile import TemporaryFile
from typing import IO, Any, Self

from benchmarks.harness.process import Assignment, Loaded, Turn


class SystemFailedError(Exception):
    """A system did not load, or failed in its turn; the message holds what it wrote last."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How a system is started.

    Attributes:
        name: in tables and messages.
        module: what its process runs; it calls `benchmarks.harness.process.work`.
        options: from which the system is made; JSON can hold them.
        python: the interpreter of its process, ours or that of another environment.
    """

    name: str
    module: str
    options: dict[str, Any]
    python: str = sys.executable


class SystemProcess:
    """A system that has loaded and waits for its turns.

    Attributes:
        loaded: how long it took to load.
    """

    def __init__(self, name: str, process: subprocess.Popen[str], errors: IO[str]) -> None:
        if process.stdin is None or process.stdout is None:
            raise AssertionError("both are pipes")
        self._name = name
        self._process = process
        self._requests, self._answers = process.stdin, process.stdout
        self._errors = errors
        self.loaded: Loaded

    @classmethod
    @contextmanager
    def run(cls, launch: Launch) -> Iterator[Self]:
        """Runs a system until the block ends.

        Raises:
            SystemFailedError: if it does not load.
        """
        command = [launch.python, "-m", launch.module]
        with (
            TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
            # In a session of its own, Ctrl-C reaches us alone, and the block ends.
            subprocess.Popen(  # noqa: S603 - our own command line
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                encoding="utf-8",
                start_new_session=True,
            ) as process,
        ):
            system = cls(launch.name, process, errors)
            try:
                system.loaded = Loaded(**system._ask(launch.options))
                yield system
            finally:
                process.kill()
                # What a process that has died never read; the message is about its death, not about that.
                with suppress(BrokenPipeError):
                    system._requests.close()

    def take_turn(self, assignment: Assignment) -> Turn:
        """Gives the system a turn and waits for its end.

        Raises:
            SystemFailedError: if it fails.
        """
        return Turn(**self._ask(asdict(assignment)))

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            print(json.dumps(request), file=self._requests, flush=True)
            answer: dict[str, Any] = json.loads(self._answers.readline())
        except (BrokenPipeError, json.JSONDecodeError) as error:
            raise SystemFailedError(f"{self._name}: {self._last_line()}") from error
        return answer

    def _last_line(self) -> str:
        self._process.kill()  # it has ended, or it does not speak our language and would wait for ever
        self._process.wait()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        return lines[-1] if lines else f"ended with status {self._process.returncode} and wrote nothing"
