"""Writes log lines to standard error in a thread of its own, so that no log blocks the server.

An unread pipe blocks only this thread. On a full disk, or without a reader, the writer counts the lost lines. When the
log works again, one line reports their number.

Libraries in C++ write to standard error by themselves, from threads that serve. `unblock` makes their writes fail, not
wait, while no process reads the pipe.
"""

import atexit
import logging
import os
import queue
import select
import stat
import threading
import time
from collections.abc import Iterator
from typing import TextIO

import structlog
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

# Enough for the requests of some seconds; further lines are dropped while the log is blocked.
WAITING_CHARACTERS = 4 << 20
# Lines of this time are written together.
BATCH_SECONDS = 0.01
BATCH_LINES = 1000
LOG_THREAD = "log"
# Time for the last lines at the end of the process.
EXIT_SECONDS = 1.0
# A blocked stream is tried again when it has room, or after that time if the system does not tell.
RETRY_MILLISECONDS = 50
REPETITION_SECONDS = 1.0
REMEMBERED_MESSAGES = 1000

_log = structlog.get_logger("dragoman")


class LogWriter(Collector):
    """A text stream that counts errors and dropped lines; `write` neither blocks nor raises. Thread-safe."""

    def __init__(self, waiting_characters: int = WAITING_CHARACTERS) -> None:
        """Starts without a stream; `waiting_characters`: number of characters that may wait for the stream."""
        self._max_characters = waiting_characters
        self._waiting: queue.SimpleQueue[str | threading.Event] = queue.SimpleQueue()
        self._characters = 0
        self._lock = threading.RLock()  # a destructor may log while its thread writes
        self._stream: TextIO | None = None
        self._descriptor: int | None = None
        self._thread: threading.Thread | None = None
        self._flushing = threading.Event()
        self.errors = 0
        self.dropped = 0
        self._reported = 0

    def open(self, stream: TextIO | None) -> None:
        """Writes to another stream from now on. A stream in memory cannot block and is written at once."""
        self.drain(BATCH_SECONDS)
        self._stream = stream
        self._descriptor = _descriptor(stream)
        if self._descriptor is not None and self._thread is None:
            self._thread = threading.Thread(target=self._run, name=LOG_THREAD, daemon=True)
            self._thread.start()
            atexit.register(self.drain, EXIT_SECONDS)

    def restart(self) -> None:
        """Starts again in a process made by `fork`, which has no copy of the thread; its lines stay with the parent."""
        stream, self._thread = self._stream, None
        self._waiting, self._lock, self._flushing = queue.SimpleQueue(), threading.RLock(), threading.Event()
        self._characters = self.errors = self.dropped = self._reported = 0
        self.open(stream)

    def write(self, text: str) -> int:
        """Takes lines to write; drops them if too many wait."""
        if self._descriptor is None:
            self._write_now(text)
            return len(text)
        if threading.current_thread() is self._thread:  # the report of lost lines, which must not wait behind others
            self._write_to_descriptor(text)
            return len(text)
        with self._lock:
            if self._characters + len(text) <= self._max_characters:
                self._characters += len(text)
                self._waiting.put(text)
            else:
                self.dropped += _lines(text)
        return len(text)

    def flush(self) -> None:
        """Does nothing: loggers flush after each line."""

    def drain(self, seconds: float) -> None:
        """Waits until all lines are written, but no longer than some seconds."""
        if self._thread is not None:
            written = threading.Event()
            self._waiting.put(written)
            self._flushing.set()
            written.wait(seconds)

    def drop(self, lines: int = 1) -> None:
        """Counts lines that were left out on purpose."""
        with self._lock:
            self.dropped += lines

    def collect(self) -> Iterator[Metric]:
        """Yields the counters of Prometheus."""
        yield CounterMetricFamily("dragoman_log_errors", "Failed writes of the log.", self.errors)
        lost = "Lost log lines: failed writes, a blocked log, or repetitions."
        yield CounterMetricFamily("dragoman_log_lines_dropped", lost, self.dropped)

    def _run(self) -> None:
        while True:
            batch = [self._waiting.get()]
            if not self._flushing.wait(BATCH_SECONDS):
                # Meanwhile, more lines may have come.
                batch += self._ready(BATCH_LINES)
            self._flushing.clear()
            # Only a log that works can report its losses.
            if self._write_batch(batch) and self.dropped > self._reported:
                lost, self._reported = self.dropped - self._reported, self.dropped
                _log.warning("log_lines_dropped", lines=lost)

    def _ready(self, count: int) -> Iterator[str | threading.Event]:
        for _ in range(count):
            try:
                yield self._waiting.get_nowait()
            except queue.Empty:
                return

    def _write_batch(self, batch: list[str | threading.Event]) -> bool:
        """Writes the lines of a batch; returns whether all of them are written."""
        text = "".join(entry for entry in batch if isinstance(entry, str))
        written = self._write_to_descriptor(text)
        with self._lock:
            self._characters -= len(text)
        for entry in batch:
            if isinstance(entry, threading.Event):
                entry.set()
        return written

    def _write_to_descriptor(self, text: str) -> bool:
        left = memoryview(text.encode("utf-8", "backslashreplace"))
        try:
            while left and self._descriptor is not None:
                try:
                    left = left[os.write(self._descriptor, left) :]
                except BlockingIOError:
                    poll = select.poll()
                    poll.register(self._descriptor, select.POLLOUT)
                    poll.poll(RETRY_MILLISECONDS)
        except OSError:
            self._fail(bytes(left).count(b"\n"))
            return False
        return True

    def _write_now(self, text: str) -> None:
        try:
            if self._stream is not None:
                self._stream.write(text)
        except (OSError, ValueError):  # ValueError: a closed stream
            self._fail(_lines(text))

    def _fail(self, lines: int) -> None:
        with self._lock:
            self.errors += 1
            self.dropped += lines


LOG_WRITER = LogWriter()
"""The log of this process."""


def unblock(stream: TextIO | None) -> None:
    """Makes writes to a pipe or socket fail while it is full; does nothing for files, terminals and closed streams."""
    descriptor = _descriptor(stream)
    if descriptor is None:
        return
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISFIFO(mode):
        try:
            # Opened again, because others may share the flags of the original.
            opened = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # of another user, or without a reader
            os.set_blocking(descriptor, False)
        else:
            os.dup2(opened, descriptor)
            os.close(opened)
    elif stat.S_ISSOCK(mode):
        os.set_blocking(descriptor, False)


class RepetitionFilter(logging.Filter):
    """Lets the same message of a library pass once a second, and counts the others as dropped.

    asyncio reports each failed `accept`, thousands of times a second while no file descriptor is free.
    """

    def __init__(self, writer: LogWriter) -> None:
        """Starts without a message."""
        super().__init__()
        self._writer = writer
        self._passed: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether a message passes."""
        now_seconds = time.monotonic()
        key = (record.name, str(record.msg).partition("\n")[0])
        if now_seconds - self._passed.get(key, -REPETITION_SECONDS) < REPETITION_SECONDS:
            self._writer.drop()
            return False
        if len(self._passed) >= REMEMBERED_MESSAGES:
            self._passed.clear()
        self._passed[key] = now_seconds
        return True


def _descriptor(stream: TextIO | None) -> int | None:
    try:
        return None if stream is None else stream.fileno()
    except (OSError, ValueError):
        return None


def _lines(text: str) -> int:
    return max(1, text.count("\n"))
