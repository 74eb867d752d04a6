"""The template: a process with one thread that has imported the parsers and forks workers, which take the calls.

A call comes as a message with two descriptors: the socket of items, which the worker gets, and a socket for the status,
on which the template reports how the worker ended. If the server closes its end of the status, the worker is killed.
One worker waits for the next call, so that few calls wait for a fork: one that has just answered a small call, or a
new one.
"""

import gc
import json
import os
import selectors
import signal
import socket
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path

from dragoman.serve.sandbox.worker import (
    MAX_REQUEST_BYTES,
    PROBE,
    READY,
    Limits,
    Parser,
    confine,
    end_with_parent,
    work,
)

# Each has a dictionary PARSERS. Names, because this package imports nothing above it.
PARSER_MODULES = (
    "dragoman.serve.documents.parsers",
    "dragoman.serve.glossaries.parsers",
    "dragoman.serve.documents.pairs",
    "dragoman.serve.edge.form_parser",
)
# A worker is forked in advance when no call has run for this time: a fork takes the CPU of a worker that runs.
IDLE_SECONDS = 0.02
MAX_CALLS_PER_WORKER = 100
EMPTY_FOLDERS = ("/tmp", "/dev/shm", "/var/tmp")  # noqa: S108 - a new folder in one of them, removed at once


@dataclass(slots=True)
class _Worker:
    """A forked worker and its number of calls; `control` has a message when it is free, and ends with the process."""

    process_id: int
    control: socket.socket
    calls: int = 0


@dataclass(slots=True)
class _Call:
    """A call that waits or runs; `end`: descriptor of the socket of items; closed once the worker has it."""

    parser: str
    purpose: str
    limits: Limits
    end: int
    status: socket.socket
    worker: _Worker | None = None
    ends_seconds: float = 0.0


class Template:
    """Forks, watches and ends the workers."""

    def __init__(self, requests: socket.socket, parsers: dict[str, Parser]) -> None:
        """Takes over the socket of calls."""
        self._requests = requests
        self._parsers = parsers
        self._selector = selectors.DefaultSelector()
        self._waiting: defaultdict[str, deque[_Call]] = defaultdict(deque)
        self._running = dict[str, _Call]()  # by purpose
        self._spare: _Worker | None = None
        self._can_fork_spare = True

    def run(self) -> None:
        """Answers calls until no server is left."""
        self._watch(self._requests, self._take)
        while self._requests.fileno() >= 0:
            self._start_calls()
            events = self._selector.select(self._pause_seconds())
            for key, _ in events:
                # One event may have closed the socket of another, whose number a new one may have.
                if self._selector.get_map().get(key.fd) is key:
                    key.data()
            self._end_late_calls()
            if not events and self._needs_spare:
                self._can_fork_spare = False
                with suppress(OSError):  # the next call tries again
                    self._spare = self._fork()

    @property
    def _needs_spare(self) -> bool:
        return self._spare is None and not self._running and self._can_fork_spare

    def _pause_seconds(self) -> float | None:
        """Returns the time until there is something to do without an event."""
        now_seconds = time.monotonic()
        ends = [call.ends_seconds for call in self._running.values()]
        if self._needs_spare:
            ends.append(now_seconds + IDLE_SECONDS)
        return max(0.0, min(ends) - now_seconds) if ends else None

    def _watch(self, end: socket.socket, act: Callable[[], object]) -> None:
        self._selector.register(end, selectors.EVENT_READ, act)

    def _forget(self, end: socket.socket) -> None:
        self._selector.unregister(end)
        end.close()

    def _take(self) -> None:
        message, files, _, _ = socket.recv_fds(self._requests, MAX_REQUEST_BYTES, 2)
        if not message:
            self._forget(self._requests)
            return
        parser, purpose, limits = json.loads(message)
        call = _Call(parser, purpose, Limits(**limits), files[0], socket.socket(fileno=files[1]))
        self._waiting[purpose].append(call)
        self._watch(call.status, lambda: self._abandon(call))

    def _abandon(self, call: _Call) -> None:
        if call.worker is not None:
            _kill(call.worker)
            return
        self._waiting[call.purpose].remove(call)
        os.close(call.end)
        self._forget(call.status)

    def _start_calls(self) -> None:
        for purpose, calls in self._waiting.items():
            while calls and purpose not in self._running:
                call = calls.popleft()
                try:
                    self._start(call)
                except OSError as error:
                    os.close(call.end)
                    self._report(call, "unavailable", f"no process for a parser starts: {error.strerror}")

    def _start(self, call: _Call) -> None:
        """Gives a call to a worker; raises OSError if none can be forked."""
        message = json.dumps([call.parser, asdict(call.limits)]).encode()
        worker = self._spare or self._fork()
        self._spare, self._can_fork_spare = None, True
        try:
            socket.send_fds(worker.control, [message], [call.end])
        except BrokenPipeError:  # the spare worker was killed
            self._reap(worker)
            worker = self._fork()
            socket.send_fds(worker.control, [message], [call.end])
        os.close(call.end)
        worker.calls += 1
        call.worker = worker
        call.ends_seconds = time.monotonic() + call.limits.wall_seconds
        self._running[call.purpose] = call
        self._selector.modify(worker.control, selectors.EVENT_READ, lambda: self._hear(call))

    def _fork(self) -> _Worker:
        control, worker_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        try:
            process_id = os.fork()
        except OSError:
            control.close()
            worker_control.close()
            raise
        if process_id == 0:
            try:
                confine(worker_control.fileno(), parent)
                work(worker_control, self._parsers)
            finally:
                os._exit(1)
        worker_control.close()
        worker = _Worker(process_id, control)
        self._watch(control, lambda: self._lose_spare(worker))
        return worker

    def _lose_spare(self, worker: _Worker) -> None:
        self._spare, self._can_fork_spare = None, True
        self._reap(worker)

    def _hear(self, call: _Call) -> None:
        """Keeps a worker that can take a further call; else ends it."""
        worker = call.worker
        if worker is None:
            return
        with suppress(ConnectionResetError):
            is_ready = worker.control.recv(len(READY)) == READY
            if is_ready and self._spare is None and worker.calls < MAX_CALLS_PER_WORKER:
                del self._running[call.purpose]
                self._forget(call.status)
                self._spare = worker
                self._selector.modify(worker.control, selectors.EVENT_READ, lambda: self._lose_spare(worker))
                return
        self._finish(call)

    def _finish(self, call: _Call, reason: str = "") -> None:
        """Reports how the worker of a call ended; `reason` if the template ended it."""
        if call.worker is not None:
            status = self._reap(call.worker)
            del self._running[call.purpose]
            self._report(call, *(("killed", reason) if reason else ("ended", status)))

    def _reap(self, worker: _Worker) -> int:
        """Returns the exit status of a worker that has ended or is to end; negative for a signal."""
        self._forget(worker.control)
        _kill(worker)  # it may have closed its end and go on
        return os.waitstatus_to_exitcode(os.waitpid(worker.process_id, 0)[1])

    def _report(self, call: _Call, kind: str, value: object) -> None:
        with suppress(OSError):  # the server has left
            call.status.send(json.dumps([kind, value]).encode())
        self._forget(call.status)

    def _end_late_calls(self) -> None:
        now_seconds = time.monotonic()
        for call in tuple(self._running.values()):
            if now_seconds >= call.ends_seconds:
                self._finish(call, "wall")


def _kill(worker: _Worker) -> None:
    with suppress(ProcessLookupError):
        os.kill(worker.process_id, signal.SIGKILL)


def _enter_empty_folder() -> None:
    """Makes an empty folder, which is removed already, the working directory; the root if no folder can be made."""
    for parent in EMPTY_FOLDERS:
        with suppress(OSError):
            folder = tempfile.mkdtemp(dir=parent)
            os.chdir(folder)
            Path(folder).rmdir()
            return
    os.chdir("/")


def main() -> None:
    """Runs the template with the socket of calls whose descriptor is the last argument of the command line."""
    end_with_parent()
    _enter_empty_folder()
    parsers = {name: parse for module in PARSER_MODULES for name, parse in import_module(module).PARSERS.items()}
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the server, which drains
    parsers[PROBE] = list
    gc.freeze()  # a collection in a worker would copy the memory of all modules
    Template(socket.socket(fileno=int(sys.argv[-1])), parsers).run()
