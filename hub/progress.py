"""Progress of an installation: lines, and bytes of a download; in the context of a thread."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

# Takes the bytes on this machine and those of the whole download, None if they are unknown.
Watch = Callable[[int, int | None], None]

_watch: ContextVar[Watch] = ContextVar("watch", default=lambda *_: None)
_stream: ContextVar[TextIO | None] = ContextVar("stream", default=None)


def report(line: str) -> None:
    """Prints a line: to standard output, or to the stream of `reported_to`."""
    print(line, file=_stream.get(), flush=True)


@contextmanager
def reported_to(stream: TextIO) -> Iterator[None]:
    """Sends the lines of this context to a stream; unlike `redirect_stdout`, not those of other threads."""
    token = _stream.set(stream)
    try:
        yield
    finally:
        _stream.reset(token)


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Passes the bytes of downloads in this context to `watch`, several times per second."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


def show_bytes(done_bytes: int, total_bytes: int | None) -> None:
    """Passes the bytes of a download to the caller."""
    _watch.get()(done_bytes, total_bytes)
