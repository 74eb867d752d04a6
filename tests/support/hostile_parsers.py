"""Parsers that misbehave, for the sandbox of a test, and the description of a worker by itself."""

import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from dragoman.serve.sandbox.frames import Item
from dragoman.serve.sandbox.worker import Parser, Refusal

_kept = list[bytes]()


def _echo(items: list[Item]) -> Iterator[Item]:
    yield from items


def _spin(_: list[Item]) -> Iterator[Item]:
    yield "begun"
    while True:
        pass


def _sleep(_: list[Item]) -> Iterator[Item]:
    yield "begun"
    while True:
        time.sleep(1)


def _allocate(items: list[Item]) -> Iterator[Item]:
    (size,) = items
    yield len(bytearray(size))


def _flood(_: list[Item]) -> Iterator[Item]:
    while True:
        yield "x" * 10_000


def _refuse(items: list[Item]) -> Iterator[Item]:
    yield "begun"
    raise Refusal(*items)


def _fail(_: list[Item]) -> Iterator[Item]:
    yield "begun"
    raise KeyError("a secret of the client")


def _die(_: list[Item]) -> Iterator[Item]:
    os.kill(os.getpid(), signal.SIGKILL)
    yield


def _wait(items: list[Item]) -> Iterator[Item]:
    """Writes its process id into one pipe, and ends when another file exists."""
    begun, path = items
    descriptor = os.open(begun, os.O_WRONLY)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    os.close(descriptor)
    while not Path(path).exists():
        time.sleep(0.01)
    yield "done"


def _process(items: list[Item]) -> Iterator[Item]:
    """Keeps as many bytes as its second item states, and yields the id of its process."""
    _kept.append(bytes(sum(items[1:])))
    yield os.getpid()


def _write(items: list[Item]) -> Iterator[Item]:
    (path,) = items
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        yield Path(path).write_text("x", encoding="ascii")
    except OSError as error:
        yield error.strerror


def _describe(_: list[Item]) -> Iterator[Item]:
    opened = [str(path.readlink()) for path in sorted(Path("/proc/self/fd").iterdir()) if path.is_symlink()]
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text("ascii").splitlines())
    yield {
        "environment": Path("/proc/self/environ").read_text("utf-8"),
        "sockets": sum(item.startswith("socket:") for item in opened),
        "others": sorted({item for item in opened if not item.startswith(("socket:", "/proc/"))}),
        "entries": [str(path) for path in Path().iterdir()],
        "no new privileges": status["NoNewPrivs"],
        "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
        "file size": resource.getrlimit(resource.RLIMIT_FSIZE)[0],
    }


_FUNCTIONS = (_echo, _spin, _sleep, _allocate, _flood, _refuse, _fail, _die, _wait, _process, _write, _describe)
PARSERS: dict[str, Parser] = {f"test.{function.__name__[1:]}": function for function in _FUNCTIONS}
