"""An iterator in a process of its own, which makes the next item while the caller uses the last one."""

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from dragoman.serve.sandbox.worker import end_with_parent

T = TypeVar("T")
_items: Iterator[Any] = iter(())


def make_ahead(make: Callable[[], Iterable[T]]) -> Iterator[T]:
    """Yields the items of an iterable that a forked process makes, and raises its errors; no item may be None."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork"), initializer=_start, initargs=(make,)) as process:
        following = process.submit(_next)
        while (item := following.result()) is not None:
            following = process.submit(_next)
            yield item


def _start(make: Callable[[], Iterable[Any]]) -> None:
    global _items  # noqa: PLW0603 - the calls of a pool have nothing else in common
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which the caller gets too
    _items = iter(make())


def _next() -> Any:
    return next(_items, None)
