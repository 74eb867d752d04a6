"""Prints figures about the structure of the repository: sizes, imports, the path of a request, and prose.

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
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from socket import AF_INET, create_server
from types import CodeType, FrameType
from typing import Any, NamedTuple

import shape
from pydantic import BaseModel

from dragoman import command_line

# The first function of a path, and the function that queues a sequence: qualified names without their modules.
HANDLER = "HttpTexts.translate"
QUEUE = "NativeScheduler._push"
# The classes that carry a request from the handler to the queue. A call that receives one of them, also as its `self`
# or as elements of a list, hands the request on.
CARRIERS = (
    *("TranslateBody", "TranslateRequest", "SearchFields", "Hop", "PreparedTranslation", "ModelRequest", "SearchPlan"),
    *("TextRequest", "SegmentedText", "SegmentedRequest", "TokenizedRequest", "SearchOptions", "SequenceSpec"),
    *("Submission", "DecodingSequence"),
)
ROOT = Path(__file__).resolve().parent.parent
SERVE = ("serve", str(ROOT / "bundles" / "multi30k-en-de"), "--host", "127.0.0.1", "--lame-duck-seconds", "0")
TRANSLATE_PATH, READY_PATH, BODY = "/v1/translate", "/readyz", json.dumps({"text": "A man is riding a bike."})
WARM_UP_REQUESTS, TRACED_REQUESTS = 2, 5
# The client reads a response before the server has left its last function.
START_SECONDS, SETTLE_SECONDS = 120.0, 0.2
LONG_FILE_LINES = 500
ALWAYS_LISTED = ("folders", "modules", "handler to queue")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Figures = dict[str, Any]
Graph = dict[str, set[str]]


class SourceFile(NamedTuple):
    """A tracked Python file."""

    path: str
    folder: str
    text: str
    tree: ast.Module


def read_sources() -> list[SourceFile]:
    """Returns every tracked Python file that exists."""
    texts = read_tracked("*.py")
    return [SourceFile(path, str(Path(path).parent), text, ast.parse(text)) for path, text in texts.items()]


def read_tracked(*patterns: str) -> dict[str, str]:
    """Returns the texts of the tracked files that exist, by path."""
    listed = subprocess.check_output(["git", "ls-files", *patterns], cwd=ROOT, text=True)  # noqa: S607 - the user's git
    return {path: (ROOT / path).read_text("utf-8") for path in listed.splitlines() if (ROOT / path).exists()}


def group(sources: Sequence[SourceFile], levels: int) -> dict[str, list[SourceFile]]:
    """Returns the sources by folder, with at most `levels` levels."""
    names = {source.path: "/".join(source.folder.split("/")[:levels]) for source in sources}
    return {name: [source for source in sources if names[source.path] == name] for name in sorted({*names.values()})}


def measure_size(sources: Sequence[SourceFile]) -> Figures:
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


def measure_prose(sources: Sequence[SourceFile]) -> Figures:
    """Returns what share of the lines is docstrings, and what share holds a comment, also behind code."""
    kinds = (ast.Module, ast.ClassDef, *FUNCTIONS)
    nodes = [node for source in sources for node in ast.walk(source.tree) if isinstance(node, kinds)]
    strings = [node.body[0] for node in nodes if ast.get_docstring(node) is not None]
    readers = [io.StringIO(source.text).readline for source in sources]
    comments = sum(token.type == tokenize.COMMENT for reader in readers for token in tokenize.generate_tokens(reader))
    docstrings = sum((node.end_lineno or 0) - node.lineno + 1 for node in strings)
    lines = sum(source.text.count("\n") for source in sources)
    shares = {"docstring percent": docstrings / lines, "comment percent": comments / lines}
    return {"lines": lines, **{name: round(100 * share, 1) for name, share in shares.items()}}


def check_contracts() -> Figures:
    """Returns how many import contracts are kept and broken; nothing if there are none."""
    if "[tool.importlinter" not in (ROOT / "pyproject.toml").read_text("utf-8"):
        return {}
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    report = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    counts = re.search(r"(\d+) kept, (\d+) broken", report.stdout)
    if counts is None:
        raise SystemExit(f"lint-imports: expected counts, got {report.stdout}{report.stderr}")
    return {"lint-imports": {"kept": int(counts[1]), "broken": int(counts[2])}}


def find_imports(code: Sequence[SourceFile]) -> tuple[Graph, Graph]:
    """Returns the imports between folders and between modules.

    A module next to subfolders counts as a folder of its own; folders with only an `__init__.py` do not count.
    """
    parents = {source.folder.rpartition("/")[0] for source in code}
    names = [_module_of(source.path) for source in code]
    rooms = [source.path if source.folder in parents else source.folder for source in code]
    folder_of = dict(zip(names, rooms, strict=True))
    modules: Graph = {}
    folders: Graph = {
        room: set() for room, source in zip(rooms, code, strict=True) if not source.path.endswith("__init__.py")
    }
    for name, room, source in zip(names, rooms, code, strict=True):
        imported = [candidates for node in ast.walk(source.tree) for candidates in _candidates(node, source.path)]
        found = {
            next((candidate for candidate in candidates if candidate in folder_of), name) for candidates in imported
        }
        modules[name] = found - {name}
        folders.setdefault(room, set()).update({folder_of[result] for result in found} - {room})
    return folders, modules


def _module_of(path: str) -> str:
    """Returns the name by which the module of a file is imported: its folder may be linked below the package."""
    linked = (ROOT / "dragoman" / path.partition("/")[0]).is_symlink()
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"dragoman.{name}" if linked else name


def _candidates(node: ast.AST, path: str) -> Iterator[tuple[str, ...]]:
    """Yields the modules that each imported name may come from, the longest first."""
    if isinstance(node, ast.Import):
        yield from ((alias.name,) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parents = path.split("/")[: -node.level] if node.level else []
        base = ".".join([*parents, *filter(None, [node.module])])
        yield from ((f"{base}.{alias.name}", base) for alias in node.names)


def measure_graph(graph: Graph) -> Figures:
    """Returns the nodes, edges and cycles (strongly connected components of more than one node) of a graph."""
    reached = {node: set(targets) for node, targets in graph.items()}
    for middle in graph:
        for node in graph:
            reached[node] |= reached[middle] if middle in reached[node] else set()
    components = {frozenset(other for other in reached[node] if node in reached[other]) for node in graph}
    cycles = sorted(", ".join(sorted(component)) for component in components if len(component) > 1)
    return {"nodes": len(graph), "edges": sum(map(len, graph.values())), "cycles": len(cycles), "named": cycles}


class Entry(NamedTuple):
    """A function of the repository that a thread entered."""

    thread: str
    file: str
    function: str
    hands_on: bool  # whether it receives the request in one of its forms


@dataclass
class Recorder:
    """Records the functions that all threads enter during one request; installed with `sys.setprofile`."""

    port: int
    queue: str
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
            if code.co_code[frame.f_lasti + 1] == 0 and (file := _file_of(code)) and not _is_special_of_data(frame):
                self.entries.append(Entry(threading.current_thread().name, file, code.co_qualname, _hands_on(frame)))
        elif event == "return" and code.co_qualname == self.queue and not self.queued:
            self.queued = len(self.entries)
        elif event == "c_call" and argument.__name__ == "send" and getattr(argument.__self__, "family", 0) == AF_INET:
            self.written = len(self.entries)


@functools.cache
def _file_of(code: CodeType) -> str:
    """Returns the path inside the repository; empty for code from elsewhere, tests, lambdas and comprehensions."""
    path = Path(code.co_filename).resolve()
    ours = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] not in ("tests", ".ci", ".venv")
    return str(path.relative_to(ROOT)) if ours and not code.co_name.startswith("<") else ""


def _is_special_of_data(frame: FrameType) -> bool:
    """Returns whether the frame runs a special method of a data class or a pydantic model."""
    name, variables = frame.f_code.co_name, frame.f_code.co_varnames
    owner = frame.f_locals.get(variables[0]) if variables and name.startswith("__") else None
    return is_dataclass(owner) or isinstance(owner, BaseModel)


def _hands_on(frame: FrameType) -> bool:
    """Returns whether the call receives the request; accessors of properties and special methods do not count."""
    code = frame.f_code
    if code.co_name.startswith("__"):
        return False
    values = [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]]
    if values and isinstance(getattr(type(values[0]), code.co_name, None), property):
        return False
    firsts = [value[0] if type(value) in (list, tuple) and value else value for value in values]
    return any(type(value).__name__ in CARRIERS for value in (*values, *firsts))


def trace_request(handler: str, queue: str) -> dict[str, list[Entry]]:
    """Runs the server in this thread and returns the functions that a request enters, in parts."""
    with create_server(("127.0.0.1", 0)) as listener:
        recorder = Recorder(listener.getsockname()[1], queue)
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
    if handler not in functions[:queued]:
        raise SystemExit("\n".join([f"expected {handler} and then {queue}, got:", *dict.fromkeys(functions)]))
    parts = {"to the queue": entries[:queued], "handler to queue": entries[functions.index(handler) : queued]}
    parts["hand-offs"] = [entry for entry in parts["handler to queue"] if entry.hands_on]
    threads = {f"thread {name}": [entry for entry in entries if entry.thread == name] for name, *_ in entries}
    return {**parts, "to the response": entries, **threads}


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
    """Returns counts of files, functions, calls and hand-offs, and the functions with their files in order."""
    named = list(dict.fromkeys(f"{entry.file}: {entry.function}" for entry in entries))
    files = {entry.file for entry in entries}
    hand_offs = sum(entry.hands_on for entry in entries)
    return {"files": len(files), "functions": len(named), "calls": len(entries), "hand-offs": hand_offs, "named": named}


def print_table(title: str, rows: Figures) -> None:
    """Prints aligned columns with one row per name, without the lists of names."""
    columns = [name for name, value in next(iter(rows.values()), {}).items() if name != "named"]
    cells = [[title, *(columns or ["none"])]]
    cells += [[name, *(f"{row[column]:,}" for column in columns)] for name, row in rows.items()]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join([name.ljust(widths[0]), *map(str.rjust, values, widths[1:])]) for name, *values in cells)
    print(*lines, "", sep="\n")


def take_figures(handler: str, queue: str) -> dict[str, Figures]:
    """Returns all figures as tables with named rows."""
    sources = read_sources()
    code = [source for source in sources if not source.path.startswith(("tests/", ".ci/"))]
    written = [source for source in code if "_pb2" not in source.path]
    totals = {
        "code": code,
        "code without generated": written,
        "tests": [source for source in sources if source not in code],
    }
    lengths = {source.path: source.text.count("\n") for source in sources}
    imports = dict(zip(("folders", "modules"), find_imports(code), strict=True))
    return {
        "folders": {name: measure_size(part) for name, part in group(sources, 2).items()},
        "totals": {name: measure_size(part) for name, part in totals.items()},
        "long files": {name: {"lines": lines} for name, lines in lengths.items() if lines > LONG_FILE_LINES},
        "import contracts": check_contracts(),
        "imports between": {name: measure_graph(graph) for name, graph in imports.items()},
        "path of a request": {name: measure_path(part) for name, part in trace_request(handler, queue).items()},
        "prose": {name: measure_prose(part) for name, part in {**group(written, 1), "total": written}.items()},
        "pages": {"README.md": {"characters": len((ROOT / "README.md").read_text("utf-8"))}},
        "C++": {"without CUDA and tests": {"lines": count_cpp_lines()}},
    }


def count_cpp_lines() -> int:
    """Returns the lines of tracked C++ files outside of tests, without those of CUDA."""
    texts = read_tracked("*.cpp", "*.hpp")
    return sum(text.count("\n") for path, text in texts.items() if not path.startswith("tests/") and "cuda" not in path)


def find_excesses(handler: str, queue: str) -> list[str]:
    """Returns what exceeds a limit of `shape.py`."""
    sources = [source for source in read_sources() if "_pb2" not in source.path]
    tests = [source for source in sources if source.path.startswith("tests/")]
    code = [source for source in sources if not source.path.startswith(("tests/", ".ci/"))]
    measured = {
        "readme characters": len((ROOT / "README.md").read_text("utf-8")),
        "files to queue": measure_path(trace_request(handler, queue)["handler to queue"])["files"],
        "lines": {"Python": count_lines(code), "tests": count_lines(tests), "C++": count_cpp_lines()},
    }
    return list(shape.excesses(code, measured))


def count_lines(sources: Sequence[SourceFile]) -> int:
    """Returns the lines of all sources."""
    return sum(source.text.count("\n") for source in sources)


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description="Prints figures about the structure of the repository.")
    parser.add_argument("--handler", default=HANDLER, help=f"handler of the route; default: {HANDLER}")
    parser.add_argument("--queue", default=QUEUE, help=f"function that queues a sequence; default: {QUEUE}")
    parser.add_argument("--verbose", action="store_true", help="list the functions of every path")
    parser.add_argument("--check", action="store_true", help="print only what exceeds a limit of shape.py")
    options = parser.parse_args()
    if options.check:
        with contextlib.redirect_stderr(io.StringIO()):
            excesses = find_excesses(options.handler, options.queue)
        raise SystemExit("\n".join(excesses) or 0)
    figures = take_figures(options.handler, options.queue)
    for title, rows in figures.items():
        print_table(title, rows)
        for name, row in rows.items():
            if row.get("named") and (options.verbose or name in ALWAYS_LISTED):
                print(f"{title}, {name}:", *(f"{n:4}  {item}" for n, item in enumerate(row["named"], 1)), "", sep="\n")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
