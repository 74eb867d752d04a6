"""The template without processes that it can fork."""

import errno
import json
import os
import socket
import threading
from dataclasses import asdict

import pytest

from dragoman.serve.sandbox.template import Template
from dragoman.serve.sandbox.worker import MEBIBYTE, Limits

LIMITS = Limits(memory_bytes=MEBIBYTE, cpu_seconds=1, wall_seconds=10.0, output_bytes=MEBIBYTE)


def test_a_call_without_a_process_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", fail)
    calls, requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    running = threading.Thread(target=Template(requests, {}).run)
    running.start()
    end, status = socket.socketpair()
    with end, status:
        message = json.dumps(["any", "documents", asdict(LIMITS)]).encode()
        socket.send_fds(calls, [message], [end.fileno(), end.fileno()])
        assert json.loads(status.recv(1000)) == [
            "unavailable",
            "no process for a parser starts: Resource temporarily unavailable",
        ]
    calls.close()
    running.join(60)
    assert not running.is_alive()
