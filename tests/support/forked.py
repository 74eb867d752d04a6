"""Processes of `python -m MODULE` and `python -c PROGRAM` that need not import the server anew (Linux).

A template process has imported it and forks. The imports take more than a second of a CPU; a fork takes milliseconds. A
forked process has its own descriptors, environment and working directory. It becomes a child of the test process, which
adopts orphans. It reads no variable of the interpreter, such as PYTHONIOENCODING.
"""

import atexit
import ctypes
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from inspect import signature
from types import SimpleNamespace
from typing import Any, AnyStr, TextIO, cast

import pytest

from tests.support.paths import ROOT

IMPORTED = (
    "dragoman",
    "dragoman.serve.app",
    "dragoman.serve.clients.translate",
    "dragoman.hub.serve_command",
    "tests.support.live",
)
TEMPLATE = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.support.forked import fork_all
fork_all(int(sys.argv[2]))
"""
PR_SET_CHILD_SUBREAPER = 36
MAX_MESSAGE_BYTES = 1 << 20
_lock = threading.Lock()
_execute_child: Any = subprocess.Popen._execute_child  # type: ignore[attr-defined]


class ForkedPopen(subprocess.Popen[AnyStr]):
    """A process of this interpreter with `-m MODULE` or `-c PROGRAM`, by the parameters of `Popen`."""

    def _execute_child(self, *given: Any) -> None:
        arguments = signature(_execute_child).bind(self, *given).arguments
        interpreter, *command = map(os.fspath, arguments["args"])
        assert interpreter == sys.executable
        ends = [(arguments[name], own) for own, name in enumerate(("p2cread", "c2pwrite", "errwrite"))]
        environment = os.environ if arguments["env"] is None else arguments["env"]
        message = {"command": command, "cwd": os.path.realpath(arguments["cwd"] or "."), "environment": {**environment}}
        message |= {"cpus": [*os.sched_getaffinity(0)], "session": arguments["start_new_session"]}
        files = [own if end == -1 else end for end, own in ends]
        with _lock:
            template = _template()
            socket.send_fds(template, [json.dumps(message).encode()], files)
            self.pid = int(template.recv(100))
        self._child_created = True
        names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        cast("Any", self)._close_pipe_fds(*(arguments[name] for name in names))


@cache
def _template() -> socket.socket:
    """Starts the process that forks; it ends with this one."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    atexit.register(ours.close)
    theirs.set_inheritable(True)
    os.posix_spawn(sys.executable, [sys.executable, "-c", TEMPLATE, str(ROOT), str(theirs.fileno())], os.environ)
    theirs.close()
    return ours


def fork_all(descriptor: int) -> None:
    """Forks a process for each message of a socket. Every fork returns from here as the program that it runs."""
    for name in IMPORTED:
        import_module(name)
    gc.freeze()  # a collection in a fork would copy the memory of all modules
    requests = socket.socket(fileno=descriptor)
    while True:
        message, files, _, _ = socket.recv_fds(requests, MAX_MESSAGE_BYTES, 3)
        if not message:
            return
        read_end, write_end = os.pipe()
        if (between := os.fork()) == 0:
            if (process := os.fork()) == 0:
                os.close(read_end)
                os.close(write_end)
                requests.close()
                _run(files, **json.loads(message))
                return
            os.write(write_end, str(process).encode())
            os._exit(0)
        os.waitpid(between, 0)  # now the process is an orphan
        for file in files:
            os.close(file)
        os.close(write_end)
        requests.send(os.read(read_end, 100))
        os.close(read_end)


@pytest.fixture(scope="session")
def forked_servers() -> Iterator[None]:
    """Forks what `ServerProcess` starts."""
    with pytest.MonkeyPatch.context() as patch:
        forking = SimpleNamespace(**{**vars(subprocess), "Popen": ForkedPopen})
        patch.setattr("dragoman.serve.host.server_process.subprocess", forking)
        yield


def _run(
    files: list[int], command: list[str], cwd: str, environment: dict[str, str], *, cpus: list[int], session: bool
) -> None:
    if session:
        os.setsid()
    os.sched_setaffinity(0, cpus)
    for own, file in enumerate(files):
        os.dup2(file, own)
    for file in files:
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin, sys.stdout, sys.stderr = _standard("r", 0), _standard("w", 1), _standard("w", 2)
    option, program, *arguments = command
    sys.argv = [option, *arguments]
    if option == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        exec(program, {"__name__": "__main__"})  # noqa: S102 - of the test


def _standard(mode: str, descriptor: int) -> TextIO:
    buffering = 1 if descriptor == 2 or os.isatty(descriptor) else -1
    return cast("TextIO", open(descriptor, mode, buffering, encoding="utf-8", closefd=False))
