"""The owner of the template: starts it at the first call, and again at the next one after it has ended.

All processes of a service send their calls over the same socket. The host keeps both ends, so that a call waits in the
socket while no template runs.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import structlog

from dragoman.serve.sandbox.worker import MAX_REQUEST_BYTES

# Without `site`: the template has the paths of the server.
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from dragoman.serve.sandbox.template import main; main()"
)
_OPTIONS = ("-I", "-S", "-X", "utf8", "-c", _BOOT)

log = structlog.get_logger("dragoman")


class ParserHost:
    """Owns the template of a service, a socket for calls that others inherit, and the end that they close."""

    def __init__(self) -> None:
        self.calls, self.own_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.calls.setblocking(False)
        self._process: subprocess.Popen[bytes] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch(self) -> None:
        """Starts a template when there is a call, while the running event loop runs."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self.own_end, self._start, self._loop)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self.own_end)
        paths = json.dumps([str(Path(path).resolve()) for path in sys.path])
        self.own_end.setblocking(True)
        try:
            process = subprocess.Popen(  # noqa: S603 - our own command line
                [sys.executable, *_OPTIONS, paths, str(self.own_end.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,  # ends with the process
                pass_fds=(self.own_end.fileno(),),
                env={},
                cwd="/",
            )
        except OSError as error:
            self._refuse(f"no process for parsers starts: {error.strerror}")
            self.watch()
            return
        self._process = process
        if process.stdout is not None:
            loop.add_reader(process.stdout, self._note_end)

    def _note_end(self) -> None:
        """Gives up the calls that wait, since they may be the reason; the next call starts a template again."""
        status = self._end()
        log.warning("parsers_ended", status=status)
        self._refuse(f"the process of the parsers ended with status {status}")
        self.watch()

    def _refuse(self, reason: str) -> None:
        self.own_end.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                message, files, _, _ = socket.recv_fds(self.own_end, MAX_REQUEST_BYTES, 2)
                if not message:
                    return
                os.close(files[0])
                with socket.socket(fileno=files[1]) as status, suppress(OSError):
                    status.send(json.dumps(["unavailable", reason]).encode())

    def _end(self) -> int | None:
        """Ends the template; returns its status, None if it does not run."""
        process, self._process = self._process, None
        if process is None or self._loop is None or process.stdout is None:
            return None
        self._loop.remove_reader(process.stdout)
        process.stdout.close()
        process.kill()
        return process.wait()

    def close(self) -> None:
        """Ends the template and its workers."""
        if self._loop is not None:
            self._loop.remove_reader(self.own_end)
        self._end()
        self.calls.close()
        self.own_end.close()
