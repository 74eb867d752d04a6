"""Runs `dragoman serve` as a subprocess: ports, command line, start, readiness, stop. Its output goes to a log file."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Self

from tqdm import tqdm

from dragoman.model.errors import UserError

HOST = "127.0.0.1"
STOP_SECONDS = 60.0
PROBE_SECONDS = 5.0
POLL_SECONDS = 0.1


class ServerProcessError(UserError):
    """The server did not start or ended unexpectedly; the message has the last line of its log."""


class ServerProcess:
    """A server that can be stopped, killed and started again; `settings` are environment variables."""

    def __init__(
        self, command: Sequence[str], http_port: int, log: Path, settings: Mapping[str, str] | None = None
    ) -> None:
        self._command = command
        self._http_port = http_port
        self._log = log
        self._environment = {**os.environ, **(settings or {})}
        self._started: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextmanager
    def run(cls, command: Sequence[str], http_port: int, log: Path) -> Iterator[Self]:
        """Runs a server for a block, then stops it with SIGTERM; raises ServerProcessError if it ends with an error."""
        server = cls(command, http_port, log)
        server.start()
        try:
            yield server
        except BaseException:
            server._terminate()
            raise
        server.stop()

    def start(self) -> None:
        """Starts the server without waiting until it is ready."""
        with self._log.open("ab") as file:
            # In another session the server gets no Ctrl-C, which would be a second signal and cut its drain short.
            self._started = subprocess.Popen(  # noqa: S603 - our own command line
                self._command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True, env=self._environment
            )

    @property
    def _process(self) -> subprocess.Popen[bytes]:
        if self._started is None:
            raise AssertionError("the server has been started")
        return self._started

    @property
    def exit_status(self) -> int | None:
        """Exit status; negative after a signal, None while the server runs."""
        return self._process.poll()

    @property
    def process_id(self) -> int:
        """Process id."""
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the server."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kills the server (SIGKILL)."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Stops the server by SIGTERM; raises ServerProcessError if it ends with an error, or must be killed."""
        self._terminate()
        if self._process.returncode != 0:
            raise self.failure("when it was stopped")

    def _terminate(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        except BaseException:
            self.kill()
            raise

    def wait_until_ready(self, timeout_seconds: float) -> None:
        """Waits until the server is ready; raises ServerProcessError if it ends first or takes too long."""
        deadline_seconds = time.monotonic() + timeout_seconds
        with tqdm(desc="starting the server", bar_format="{desc}: {elapsed}", disable=None, leave=False) as bar:
            while not is_ready(self._http_port):
                if self._process.poll() is not None:
                    raise self.failure("before it was ready")
                if time.monotonic() > deadline_seconds:
                    problem = f"the server was not ready after {timeout_seconds} seconds"
                    raise ServerProcessError(f"{problem}: {read_last_line(self._log)}")
                bar.refresh()
                time.sleep(POLL_SECONDS)

    def wait_for_interrupt(self) -> None:
        """Waits for Ctrl-C; raises ServerProcessError if the server ends first."""
        try:
            self._process.wait()
        except KeyboardInterrupt:
            return
        raise self.failure("unexpectedly")

    def failure(self, moment: str) -> ServerProcessError:
        """Returns an error with the exit status and the last line of the log, usually the reason."""
        status, last_line = self._process.returncode, read_last_line(self._log)
        return ServerProcessError(f"the server ended {moment}, with status {status}: {last_line}")


def read_last_line(log: Path) -> str:
    """Returns the last nonblank line of a log."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "no output")


@contextmanager
def reserve_ports(*ports: int) -> Iterator[tuple[int, ...]]:
    """Yields the ports, with a free port in place of each 0.

    On Linux, the system gives them to no other program until the block ends, but servers may listen on them.

    Raises OSError if a port is taken: its server would answer the requests.
    """
    with ExitStack() as stack:
        reserved = [stack.enter_context(_reserve(port)) for port in ports]
        numbers = tuple(item.getsockname()[1] for item in reserved)
        if sys.platform != "linux":
            stack.close()  # elsewhere a bound socket would keep the servers out
        yield numbers


def _reserve(port: int) -> socket.socket:
    reserved = socket.socket()
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((HOST, port))
        # The option is set after the bind, which would else share a port that the processes of another server share.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError:
        reserved.close()
        raise
    return reserved


def server_command(bundle: Path, http_port: int, grpc_port: int, **settings: float) -> list[str]:
    """Returns the command line of the server, with some of its settings."""
    options = {"host": HOST, "http_port": http_port, "grpc_port": grpc_port, "lame_duck_seconds": 0, **settings}
    flags = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    return [sys.executable, "-m", "dragoman", "serve", str(bundle), *flags]


def is_ready(http_port: int) -> bool:
    """Returns whether a server answers the readiness probe with 200."""
    with closing(http.client.HTTPConnection(HOST, http_port, timeout=PROBE_SECONDS)) as connection:
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
