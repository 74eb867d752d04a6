"""A server in a separate process that may be killed, stalled and restarted on the same ports.

It runs in its own session and writes its output to a log file. Unlike `serve.server_process`, an unexpected exit is not
an error by itself.
"""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from loadtest.clients import Targets
from serve.server_process import HOST, is_ready, read_last_line

START_SECONDS = 120.0
STOP_SECONDS = 60.0
POLL_SECONDS = 0.05


class ServedProcessError(Exception):
    """A server did not become ready or did not exit with status 0; the message holds its last log line."""


class ServedProcess:
    """A server that can be restarted on the same HTTP and gRPC ports; it writes to `log`."""

    def __init__(self, command: Sequence[str], ports: tuple[int, int], log: Path, settings: Mapping[str, str]) -> None:
        self._command = list(command)
        self._http_port, self._grpc_port = ports
        self._log = log
        self._environment = {**os.environ, **settings}
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextmanager
    def run(
        cls, command: Sequence[str], ports: tuple[int, int], log: Path, settings: Mapping[str, str] | None = None
    ) -> Iterator[Self]:
        """Starts a server, and kills it when the block ends."""
        served = cls(command, ports, log, settings or {})
        served.start()
        try:
            yield served
        finally:
            served.kill()

    @property
    def ports(self) -> tuple[int, int]:
        """HTTP and gRPC port."""
        return self._http_port, self._grpc_port

    @property
    def targets(self) -> Targets:
        """Addresses of the server."""
        return Targets(f"{HOST}:{self._grpc_port}", f"http://{HOST}:{self._http_port}")

    @property
    def process_id(self) -> int:
        """Process id."""
        return self._running.pid

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise AssertionError("the server has been started")
        return self._process

    def start(self) -> None:
        """Starts the server without waiting until it is ready."""
        with self._log.open("ab") as file:
            # In its own session the server does not receive Ctrl-C.
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                self._command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True, env=self._environment
            )

    async def wait_ready(self) -> None:
        """Waits until the server is ready.

        Raises:
            ServedProcessError: if it exits before, or after START_SECONDS.
        """
        deadline_seconds = time.monotonic() + START_SECONDS
        while not await asyncio.to_thread(is_ready, self._http_port):
            if self._running.poll() is not None:
                raise self._failure(f"the server exited with status {self._running.returncode}")
            if time.monotonic() > deadline_seconds:
                raise self._failure(f"the server was not ready after {START_SECONDS:.0f} s")
            await asyncio.sleep(POLL_SECONDS)

    def kill(self) -> None:
        """Kills the server (SIGKILL)."""
        self._running.kill()
        self._running.wait()

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the server."""
        self._running.send_signal(number)

    async def stop(self) -> None:
        """Stops the server (SIGTERM) and waits until it has exited.

        Raises:
            ServedProcessError: if the exit status is not 0, or after STOP_SECONDS.
        """
        self._running.terminate()
        try:
            status = await asyncio.to_thread(self._running.wait, STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise self._failure(f"the server did not exit within {STOP_SECONDS:.0f} s") from None
        if status != 0:
            raise self._failure(f"the server exited with status {status}, expected 0")

    def _failure(self, problem: str) -> ServedProcessError:
        return ServedProcessError(f"{problem}: {read_last_line(self._log)}")
