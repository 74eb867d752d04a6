"""The command line `dragoman`. A subcommand is imported only when it runs, so that `--help` is quick."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.metadata import version
from inspect import getdoc
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.model.errors import INTERRUPTED, TERMINATED
from dragoman.serve.commands.errors import suggest

if TYPE_CHECKING:
    from pydantic_settings import BaseSettings

# The place and the summary of each command, by its name.
COMMANDS = {
    name: (place, summary)
    for name, place, summary in (
        line.split("\t") for line in Path(__file__).with_name("commands.tsv").read_text("utf-8").splitlines()
    )
}
# The title of the group of commands that begins with each of these.
GROUPS = {
    "corpus": "Train",
    "export": "Export",
    "pull": "Models",
    "serve": "Serve",
    "translate": "Translate",
    "evaluate": "Measure",
    "completion": "Shell",
}
NOTES = ("`dragoman help COMMAND` lists the options of a command.", "`dragoman version` prints the version.")
# The name of a command has at most this number of words.
MAX_WORDS = 2
# Modules whose commands start processes or write into temporary folders.
NEED_CLEANUP = (".export.", ".hub.commands:", ".hub.train", ".loadtest.", "benchmarks.", ".serve.commands.demo:")
# The libraries of each extra, by the names of their modules.
EXTRAS = {
    "cpu": ("onnxruntime", "huggingface_hub", "filelock"),
    "cuda": ("onnxruntime", "pynvml", "huggingface_hub", "filelock"),
    "export": ("onnx", "onnxscript", "torch"),
    "bench": ("aiohttp", "plotly", "rich", "tabulate"),
    "train": ("datasets", "fluent", "lightning", "matplotlib", "polib", "sacrebleu", "sacremoses", "tabulate", "torch"),
    "peers": ("ctranslate2", "safetensors", "transformers"),
    "tracing": ("opentelemetry",),
    "postgresql": ("pg8000",),
    "pdf": ("pypdfium2",),
    "mcp": ("mcp", "uvicorn"),
}
# Packages of commands that are not part of the wheel.
CHECKOUT_PACKAGES = ("benchmarks",)


def main() -> None:
    """Runs the subcommand named by the first argument.

    Raises:
        SystemExit: with status 0 after help and version, 1 after a reported failure, 2 after wrong usage, 130 after
            Ctrl-C.
    """
    _open_standard_streams()
    _give_a_size_to_progress_bars()
    arguments = sys.argv[1:]
    try:
        try:
            _choose(arguments)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:
        # Python flushes standard output again at exit, which would fail with a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _choose(arguments: list[str]) -> None:
    """Prints help or version, or runs a subcommand."""
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    first = arguments[0] if arguments else ""
    if not arguments or first in ("-h", "--help"):
        print(usage())
        raise SystemExit(0 if arguments else 2)
    if arguments in (["version"], ["--version"], ["version", "--help"]):
        print(f"dragoman {version('dragoman')}")
        raise SystemExit(0)
    if name := _command_name(arguments):
        if COMMANDS[name][0].startswith(NEED_CLEANUP):
            # SystemExit, unlike the signal, lets them remove processes and temporary folders.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
        run(name, arguments[len(name.split()) :])
        return
    if subcommands := _subcommands(first):
        lines = [f"  {first} {word:14}  {COMMANDS[f'{first} {word}'][1]}" for word in subcommands]
        text = "\n".join([f"usage: dragoman {first} COMMAND [OPTION ...]", "", *lines])
        if arguments[1:] in (["-h"], ["--help"]):
            print(text)
            raise SystemExit(0)
        problem = "expected a command"
        if arguments[1:]:
            problem = f"{arguments[1]!r} is not a command{suggest(' '.join(arguments[:MAX_WORDS]), COMMANDS)}"
        print(f"{text}\n\ndragoman {first}: {problem}", file=sys.stderr)
        raise SystemExit(2)
    names = [*COMMANDS, *{name.partition(" ")[0] for name in COMMANDS}, "help", "version"]
    hint = suggest(" ".join(arguments[:MAX_WORDS]), COMMANDS) or suggest(first, names)
    hint = hint or ", `dragoman help` lists the commands"
    print(f"dragoman: {first!r} is not a command{hint}", file=sys.stderr)
    raise SystemExit(2)


def _command_name(arguments: list[str]) -> str:
    """Returns the name of the command, which has one word or two; empty if there is none."""
    names = (" ".join(arguments[:words]) for words in range(MAX_WORDS, 0, -1))
    return next((name for name in names if name in COMMANDS), "")


def _subcommands(first: str) -> list[str]:
    """Returns the second words of the commands that begin with a word."""
    return [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{first} ")]


def _open_standard_streams() -> None:
    """Opens each closed standard stream on the null device; else the next file or socket would take its place."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, "w" if descriptor else "r", closefd=False))  # noqa: SIM115 - as Python's own


def _give_a_size_to_progress_bars() -> None:
    """Sets the size of progress bars for a terminal without a size, where tqdm would print blank lines."""
    with suppress(OSError):  # no terminal
        if 0 in os.get_terminal_size(sys.stderr.fileno()):
            os.environ.setdefault("TQDM_NCOLS", "80")
            os.environ.setdefault("TQDM_NROWS", "24")


def usage() -> str:
    """Returns the list of subcommands, in groups."""
    lines = ["usage: dragoman COMMAND [OPTION ...]"]
    for name, (_, summary) in COMMANDS.items():
        if name in GROUPS:
            lines += ["", f"{GROUPS[name]}:"]
        lines.append(f"  {name:17}  {summary}")
    return "\n".join([*lines, "", *NOTES])


def run(name: str, arguments: list[str]) -> None:
    """Parses the arguments of a subcommand and runs it.

    Raises:
        SystemExit: with status 2 if an argument is invalid, 1 if a library is missing or a file cannot be read or
            written; standard error names it.
    """
    from dragoman.serve.commands.run import quick_imports, run_command  # noqa: PLC0415 - the list of commands needs no parser

    with _missing_library_explained(name):
        with quick_imports():
            command = load_command(name)
        run_command(name, command, arguments, [f"{name} {word}" for word in _subcommands(name)])


def load_command(name: str) -> "type[BaseSettings]":
    """Imports the class of a subcommand."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    command: type[BaseSettings] = getattr(import_module(module, __package__), attribute)
    command.__doc__ = getdoc(command)  # the text of --help, without indentation
    return command


@contextmanager
def _missing_library_explained(name: str) -> Iterator[None]:
    """Ends the command `name` with exit code 1 and one line if the block imports a library that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = error.name or ""
        library = missing.partition(".")[0]
        if missing in CHECKOUT_PACKAGES:
            expected = "a checkout of the repository: pip install -e ."
        elif extras := [extra for extra, libraries in EXTRAS.items() if library in libraries]:
            expected = f"the extra {' or '.join(extras)}: pip install '.[{name if name in extras else extras[0]}]'"
        else:
            raise
        raise SystemExit(f"dragoman {name}: {library} is not installed, expected {expected}") from error
