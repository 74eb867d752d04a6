"""Prints figures about the structure of the repository: sizes, import contracts and the path of a request.

Run `make figures`. The last line is one JSON object with all figures.
The path of a request is traced in a real server in this process and lists functions in the order of their first calls.
"""

import argparse
import ast
import contextlib
import functools
import http.client
import io
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from socket import AF_INET, create_server
from types import CodeType, FrameType
from typing import Any, NamedTuple

from shape import FUNCTIONS, ROOT, Source, Sources, count_lines, count_readme_characters, excesses
from tabulate import tabulate

from dragoman import command_line

# The first function of a path, and the function that queues a sequence: qualified names without their modules.
HANDLER = "HttpTexts.translate"
QUEUE = "NativeScheduler._push"
SERVE = ("serve", str(ROOT / "bundles" / "multi30k-en-de"), "--host", "127.0.0.1", "--lame-duck-seconds", "0")
TRANSLATE_PATH, READY_PATH, BODY = "/v1/translate", "/readyz", json.dumps({"text": "A man is riding a bike."})
WARM_UP_REQUESTS, TRACED_REQUESTS = 2, 5
# The client reads a response before the server has left its last function.
START_SECONDS, SETTLE_SECONDS = 120.0, 0.2
LONG_FILE_LINES = 500
ALWAYS_LISTED = "handler to queue"
Figures = dict[str, Any]


def group(sources: Sequence[Source]) -> dict[str, list[Source]]:
    """Returns the sources by folder, with at most two levels."""
    names = {source.path: "/".join(source.folder.split("/")[:2]) for source in sources}
    return {name: [source for source in sources if names[source.path] == name] for name in sorted({*names.values()})}


def measure_size(sources: Sequence[Source]) -> Figures:
    """Returns the number of files and lines, and the lengths of functions."""
    nodes = [node for source in sources for node in ast.walk(source.tree) if isinstance(node, FUNCTIONS)]
    lengths = [(node.end_lineno or 0) - node.lineno + 1 for node in nodes] or [0]
    return {
        "files": len(sources),
        "lines": count_lines(sources),
        "functions": len(nodes),
        "median": statistics.median_low(lengths),
        "p90": sorted(lengths)[int(0.9 * len(lengths))],
        "longest": max(lengths),
    }


def check_contracts() -> Figures:
    """Returns how many import contracts are kept and broken."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    report = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    counts = re.search(r"(\d+) kept, (\d+) broken", report.stdout)
    if counts is None:
        raise SystemExit(f"lint-imports: expected counts, got {report.stdout}{report.stderr}")
    return {"kept": int(counts[1]), "broken": int(counts[2])}


class Entry(NamedTuple):
    """A function of the repository that a thread entered."""

    thread: str
    file: str
    function: str


@dataclass
class Recorder:
    """Records the functions that all threads enter during one request; installed with `sys.setprofile`."""

    port: int
    recording: bool = False
    entries: list[Entry] = field(default_factory=list)
    queued: int = 0  # entries before the queue function returned for the first time
    written: int = 0  # entries before the server wrote to a connection for the last time

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Handles an event of the interpreter."""
        if not self.recording:
            return
        code = frame.f_code
        if event == "call":
            # A resumed generator or coroutine raises this event too; the argument of RESUME is 0 only at the start.
            if code.co_code[frame.f_lasti + 1] == 0 and (file := _file_of(code)):
                self.entries.append(Entry(threading.current_thread().name, file, code.co_qualname))
        elif event == "return" and code.co_qualname == QUEUE and not self.queued:
            self.queued = len(self.entries)
        elif event == "c_call" and argument.__name__ == "send" and getattr(argument.__self__, "family", 0) == AF_INET:
            self.written = len(self.entries)


@functools.cache
def _file_of(code: CodeType) -> str:
    """Returns the path inside the repository; empty for code from elsewhere, made code, lambdas and comprehensions."""
    path = Path(code.co_filename).resolve()
    ours = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] not in ("tests", ".ci", ".venv")
    return str(path.relative_to(ROOT)) if ours and path.suffix and not code.co_name.startswith("<") else ""


def trace_request() -> dict[str, list[Entry]]:
    """Runs the server in this thread and returns the functions that a request enters, in parts."""
    with create_server(("127.0.0.1", 0)) as listener:
        recorder = Recorder(listener.getsockname()[1])
    for name in [name for name in os.environ if name.startswith("DRAGOMAN_")]:
        del os.environ[name]
    # The server runs in asyncio's event loop: a profiler of Python does not see what uvloop writes.
    sys.modules["uvloop"] = None  # type: ignore[assignment]
    recordings: list[tuple[list[Entry], int]] = []
    threading.Thread(target=_visit, args=(recorder, recordings), daemon=True).start()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    sys.argv = ["dragoman", *SERVE, "--http-port", str(recorder.port), "--grpc-port", "0"]
    command_line.main()
    sys.setprofile(None)
    # Other requests may include periodic work of the server.
    entries, queued = min(recordings[WARM_UP_REQUESTS:], key=lambda recording: len(recording[0]))
    functions = [entry.function for entry in entries]
    if HANDLER not in functions[:queued]:
        raise SystemExit("\n".join([f"expected {HANDLER} and then {QUEUE}, got:", *dict.fromkeys(functions)]))
    parts = {"to the queue": entries[:queued], "handler to queue": entries[functions.index(HANDLER) : queued]}
    return {**parts, "to the response": entries}


def _visit(recorder: Recorder, recordings: list[tuple[list[Entry], int]]) -> None:
    """Waits for the server, sends requests one by one and stops the server."""
    try:
        deadline_seconds = time.monotonic() + START_SECONDS
        while not _succeeds(recorder.port, "GET", READY_PATH) and time.monotonic() < deadline_seconds:
            time.sleep(SETTLE_SECONDS)
        for _ in range(WARM_UP_REQUESTS + TRACED_REQUESTS):
            recorder.entries, recorder.queued, recorder.written, recorder.recording = [], 0, 0, True
            if not _succeeds(recorder.port, "POST", TRANSLATE_PATH, BODY):
                raise ValueError(f"{TRANSLATE_PATH}: expected status 200")
            time.sleep(SETTLE_SECONDS)
            recorder.recording = False
            # The last step of the engine ends before or after the response is written: all of it counts.
            late = [entry for entry in recorder.entries[recorder.written :] if entry.thread != "MainThread"]
            recordings.append((recorder.entries[: recorder.written] + late, recorder.queued))
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def _succeeds(port: int, method: str, path: str, body: str | None = None) -> bool:
    with contextlib.suppress(OSError), contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        connection.request(method, path, body, {"content-type": "application/json"})
        response = connection.getresponse()
        return bool(response.read()) and response.status == http.HTTPStatus.OK
    return False


def measure_path(entries: Sequence[Entry]) -> Figures:
    """Returns counts of files, functions and calls, and the functions with their files in order."""
    named = list(dict.fromkeys(f"{entry.file}: {entry.function}" for entry in entries))
    files = {entry.file for entry in entries}
    return {"files": len(files), "functions": len(named), "calls": len(entries), "named": named}


def print_table(title: str, rows: Figures) -> None:
    """Prints a row per name, without the lists of names."""
    cells = [
        [name, *(f"{figure:,}" for column, figure in row.items() if column != "named")] for name, row in rows.items()
    ]
    heading = [title, *(column for column in next(iter(rows.values()), {}) if column != "named")]
    aligned = ["left", *["right"] * (len(heading) - 1)]
    print(tabulate(cells, heading, "plain", disable_numparse=True, colalign=aligned if cells else None), end="\n\n")


def take_figures() -> dict[str, Figures]:
    """Returns all figures as tables with named rows."""
    sources = Sources.read()
    everything = [source for kind in sources for source in kind]
    lengths = {source.path: count_lines([source]) for source in everything}
    return {
        "folders": {name: measure_size(part) for name, part in group(everything).items()},
        "totals": {name: measure_size(part) for name, part in sources._asdict().items()},
        "long files": {name: {"lines": lines} for name, lines in lengths.items() if lines > LONG_FILE_LINES},
        "import contracts": {"lint-imports": check_contracts()},
        "path of a request": {name: measure_path(part) for name, part in trace_request().items()},
        "pages": {"README.md": {"characters": count_readme_characters()}},
        "C++": {"without CUDA and tests": {"lines": sources.lines["C++"]}},
    }


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description="Prints figures about the structure of the repository.")
    parser.add_argument("--verbose", action="store_true", help="list the functions of every path")
    parser.add_argument("--check", action="store_true", help="print only what exceeds a limit of shape.py")
    options = parser.parse_args()
    if options.check:
        with contextlib.redirect_stderr(io.StringIO()):
            path = measure_path(trace_request()["handler to queue"])
        raise SystemExit("\n".join(excesses(Sources.read(), path["files"])) or 0)
    figures = take_figures()
    for title, rows in figures.items():
        print_table(title, rows)
        for name, row in rows.items():
            if "named" in row and (options.verbose or name == ALWAYS_LISTED):
                print(f"{title}, {name}:", *(f"{n:4}  {item}" for n, item in enumerate(row["named"], 1)), "", sep="\n")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
