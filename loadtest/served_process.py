"""A server in a process of its own that may be treated badly: killed, stopped for a while, started again.

It is started as anybody would start it; what it writes goes to a log file. Unlike `serve.server_process`, which takes
every other end than the one it asked for as a failure. Called by the commands that disturb.
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
    """A server did not become ready, or did not end as it should; the message holds what it wrote last."""


class ServedProcess:
    """A server that can be started again and again on the same ports."""

    def __init__(self, command: Sequence[str], ports: tuple[int, int], log: Path, settings: Mapping[str, str]) -> None:
        """Keeps what it needs.

        Args:
            command: of the server.
            ports: of REST and of gRPC.
            log: the file that gets what it writes.
            settings: environment variables, besides those of this process.
        """
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
        """Starts a server and kills it when the block ends, if it still runs."""
        served = cls(command, ports, log, settings or {})
        served.start()
        try:
            yield served
        finally:
            served.kill()

    @property
    def ports(self) -> tuple[int, int]:
        """Of REST and of gRPC."""
        return self._http_port, self._grpc_port

    @property
    def targets(self) -> Targets:
        """Where it is."""
        return Targets(f"{HOST}:{self._grpc_port}", f"http://{HOST}:{self._http_port}")

    @property
    def servers(self) -> tuple[Targets, ...]:
        """Itself, as one of those that may be treated badly together."""
        return (self.targets,)

    @property
    def process_id(self) -> int:
        """Of the operating system."""
        return self._running.pid

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise AssertionError("it was started")
        return self._process

    def start(self) -> None:
        """Starts it; it is not ready yet."""
        with self._log.open("ab") as file:
            # In a session of its own, Ctrl-C reaches us alone.
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                self._command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True, env=self._environment
            )

    async def wait_ready(self) -> None:
        """Returns once it says that it is ready.

        Raises:
            ServedProcessError: if it ends before, or takes too long.
        """
        deadline_seconds = time.monotonic() + START_SECONDS
        while not await asyncio.to_thread(is_ready, self._http_port):
            if self._running.poll() is not None:
                raise self._failure(f"the server ended with status {self._running.returncode}")
            if time.monotonic() > deadline_seconds:
                raise self._failure(f"the server was not ready after {START_SECONDS:.0f} s")
            await asyncio.sleep(POLL_SECONDS)

    def kill(self) -> None:
        """Ends it without asking it (SIGKILL)."""
        self._running.kill()
        self._running.wait()

    def send(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        self._running.send_signal(number)

    async def pause(self, seconds: float) -> None:
        """Makes it stand still (SIGSTOP)."""
        self.send(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.send(signal.SIGCONT)

    async def stop(self) -> None:
        """Asks it to end, and waits until it has.

        Raises:
            ServedProcessError: if it ends otherwise than with exit status 0, or not at all.
        """
        self._running.terminate()
        try:
            status = await asyncio.to_thread(self._running.wait, STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise self._failure(f"the server did not end within {STOP_SECONDS:.0f} s") from None
        if status != 0:
            raise self._failure(f"the server ended with status {status}")

    def _failure(self, problem: str) -> ServedProcessError:
        return ServedProcessError(f"{problem}: {read_last_line(self._log)}")
