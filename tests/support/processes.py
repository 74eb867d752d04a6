"""`dragoman serve` with fake models as a process, its log, and the memory of this process."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from mmap import PAGESIZE
from pathlib import Path
from typing import Any

from tests.support.forked import ForkedPopen
from tests.support.paths import ROOT

# `dragoman serve` with fake models. The arguments are the behavior of the model and the bundle: "open"; "shut": blocks
# after the golden sentences; "warming": blocks before they are complete; "loading": never loads.
PROGRAM = """
import sys
import threading
from functools import partial
from dragoman import command_line
import dragoman.serve.app
from tests.support.fakes import FakeModel
from tests.support.fake_bundles import GOLDEN

KIND = sys.argv[1]

class Model(FakeModel):
    def decode_step(self, *arguments, **held):
        if KIND == "warming":
            print("stands still", file=sys.stderr, flush=True)
        if KIND == "warming" or (KIND == "shut" and sum(rows for rows, _ in self.prefills) > len(GOLDEN)):
            threading.Event().wait()
        return super().decode_step(*arguments, **held)

def load(settings, bundle):
    if KIND == "loading":
        print("stands still", file=sys.stderr, flush=True)
        threading.Event().wait()
    return [Model(4)]

dragoman.serve.app.serve = partial(dragoman.serve.app.serve, load=load)
options = "--host 127.0.0.1 --http-port 0 --grpc-port 0 --lame-duck-seconds 0 --engines 1 --slots 4"
command_line.run("serve", [*options.split(), *sys.argv[2:]])
"""


def fake_command(bundle_path: Path, kind: str = "open", *options: str) -> list[str]:
    """Returns the command line of the program; `options` override its own."""
    return [sys.executable, "-c", PROGRAM, kind, str(bundle_path), *options]


def children(process_id: int) -> list[int]:
    text = Path(f"/proc/{process_id}/task/{process_id}/children").read_text(encoding="ascii")
    return [int(word) for word in text.split()]


@contextmanager
def start_process(
    bundle_path: Path, kind: str = "open", *options: str, stderr: int = subprocess.PIPE, launcher: Sequence[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    """Runs the program as a process; `launcher` is a command that runs its arguments."""
    command = [*launcher, *fake_command(bundle_path, kind, *options)]
    start = subprocess.Popen if launcher else ForkedPopen
    with start(command, stderr=stderr, text=True, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def resident_bytes(process: int | str = "self") -> int:
    return int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]) * PAGESIZE


def read_log(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stderr is not None
    line: dict[str, Any] = json.loads(process.stderr.readline())
    return line
