"""A log that cannot be written blocks nothing and raises nothing; lost lines are counted and reported."""

import io
import json
import logging
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import pytest
import structlog
from prometheus_client import CollectorRegistry

from dragoman.serve.observability.log_writer import LogWriter, RepetitionFilter, unblock

PIPE_BYTES = 1 << 20
Pipe = tuple[int, TextIO]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """Returns the two ends of a pipe: a descriptor to read from, and a stream to write to."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        yield reading, stream
        os.close(reading)


def reported_to(writer: LogWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the writer report its losses to itself, as JSON."""
    log = structlog.wrap_logger(structlog.WriteLogger(writer), processors=[structlog.processors.JSONRenderer()])  # type: ignore[arg-type]
    monkeypatch.setattr("dragoman.serve.observability.log_writer._log", log)


def reported_lines(data: bytes) -> int:
    return sum(json.loads(line)["lines"] for line in data.splitlines() if line.startswith(b"{") and line.endswith(b"}"))


def test_a_pipe_that_nobody_reads_blocks_nobody_and_its_lost_lines_are_reported(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, stream = pipe
    writer = LogWriter(waiting_characters=10_000)
    reported_to(writer, monkeypatch)
    writer.open(stream)
    for _ in range(200):
        writer.write("x" * 999 + "\n")
        writer.drain(seconds=0.001)
    assert writer.dropped > 0
    received = b""
    while received.count(b"x" * 999) + (reported := reported_lines(received)) < 200:
        received += os.read(reading, PIPE_BYTES)
    assert reported == writer.dropped


def fill(descriptor: int) -> None:
    """Writes until there is no room."""
    with suppress(BlockingIOError):
        while True:
            os.write(descriptor, b"x" * 4096)


def test_a_full_pipe_refuses_writes_at_once_but_not_those_of_other_processes(pipe: Pipe) -> None:
    """Another process has the same open file as `other`."""
    _, stream = pipe
    other = os.dup(stream.fileno())
    unblock(stream)
    fill(stream.fileno())
    assert os.get_blocking(other)
    os.close(other)


def test_a_pipe_that_cannot_be_reopened_and_a_socket_refuse_writes(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.serve.observability.log_writer.os.open", lambda *_: Path("/nowhere").stat())
    unblock(pipe[1])
    fill(pipe[1].fileno())
    sending, receiving = socket.socketpair()
    with sending, receiving, sending.makefile("w") as stream:
        unblock(stream)
        fill(stream.fileno())


def test_files_and_closed_streams_stay_as_they_are(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as stream:
        unblock(stream)
        assert os.get_blocking(stream.fileno())
    unblock(stream)
    unblock(None)


def test_all_lines_pass_an_unblocked_pipe(pipe: Pipe) -> None:
    reading, stream = pipe
    unblock(stream)
    writer = LogWriter()
    writer.open(stream)
    for _ in range(1000):
        writer.write("x" * 999 + "\n")
    received = 0
    while received < 1_000_000:
        received += len(os.read(reading, 5000))
    assert (writer.errors, writer.dropped) == (0, 0)


def test_a_lost_reader_and_a_full_disk_are_counted() -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        writer = LogWriter()
        writer.open(full)
        writer.write("one\ntwo\n")
        writer.drain(seconds=10)
    assert (writer.errors, writer.dropped) == (1, 2)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        writer.open(stream)
        writer.write("three\n")
        writer.drain(seconds=10)
    assert (writer.errors, writer.dropped) == (2, 3)


@pytest.mark.parametrize("closed", [True, False])
def test_a_closed_or_missing_stream_is_no_error_of_the_caller(closed: bool) -> None:
    stream = io.StringIO()
    stream.close()
    writer = LogWriter()
    writer.open(stream if closed else None)
    writer.write("lost\n")
    assert writer.dropped == (1 if closed else 0)


def test_the_counters_are_metrics() -> None:
    writer, registry = LogWriter(), CollectorRegistry()
    registry.register(writer)
    writer.drop(3)
    assert registry.get_sample_value("dragoman_log_lines_dropped_total") == 3
    assert registry.get_sample_value("dragoman_log_errors_total") == 0


def test_a_repeated_message_of_a_library_passes_once_a_second() -> None:
    writer = LogWriter()
    writer.open(output := io.StringIO())
    handler = logging.StreamHandler(writer)
    handler.addFilter(RepetitionFilter(writer))
    logger = logging.getLogger("a library that repeats itself")
    logger.addHandler(handler)
    for _ in range(100):
        logger.error("out of file descriptors")
        logger.error("something else")
    assert output.getvalue().splitlines() == ["out of file descriptors", "something else"]
    assert writer.dropped == 198


def test_the_lines_of_each_thread_come_in_order(pipe: Pipe) -> None:
    reading, stream = pipe
    writer = LogWriter()
    writer.open(stream)

    def write(name: str) -> None:
        for number in range(500):
            writer.write(f"{name}{number}\n")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, "abcd"))
    writer.drain(seconds=10)
    received = os.read(reading, PIPE_BYTES).decode().split()
    for name in "abcd":
        assert [line for line in received if line.startswith(name)] == [f"{name}{number}" for number in range(500)]
    assert writer.dropped == 0
