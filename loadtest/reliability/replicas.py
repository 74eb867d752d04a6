"""Replicas: servers of one bundle in separate processes, behind nginx or balanced by their clients.

nginx runs with the configuration of `deploy/nginx`; only ports and folders are replaced. The script that watches the
replicas runs as a second process.
"""

import asyncio
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from loadtest.clients import Targets
from loadtest.scenario import LoadProtocol
from loadtest.served_process import POLL_SECONDS, START_SECONDS, ServedProcess, ServedProcessError
from loadtest.server_metrics import METRICS_PATH
from serve.clients.channel import KEEPALIVE_SECONDS, KEEPALIVE_TIMEOUT_SECONDS
from serve.server_process import HOST, PROBE_SECONDS, read_last_line

# HTTP and gRPC ports: nginx's own, then those of each replica.
PORTS = (8000, 8001, 8010, 8011, 8020, 8021, 8030, 8031)
FOLDER = "/run/dragoman"
STANDARD_OUTPUT = "/dev/stdout"
NGINX_START_SECONDS = 20.0
STOP_SECONDS = 20.0
_PORT = re.compile(r"\b80[0-3][01]\b")


@dataclass(frozen=True, slots=True)
class Nginx:
    """A running nginx; `folder` replaces /run/dragoman."""

    folder: Path
    targets: Targets

    @classmethod
    @contextmanager
    def run(cls, deployed: Path, folder: Path, ports: Sequence[int], watch_seconds: float) -> Iterator[Self]:
        """Runs nginx and the script that watches the replicas until the block ends.

        Args:
            deployed: folder with `nginx.conf` and `watch_replicas.sh`.
            folder: for all files that they write.
            ports: replace `PORTS`.
            watch_seconds: interval between two probes of a replica.

        Raises:
            ServedProcessError: if nginx is not installed or does not start.
        """
        program = find_nginx()
        if program is None:
            raise ServedProcessError("nginx: not found; install nginx")
        (folder / "out").mkdir(parents=True)
        text = (deployed / "nginx.conf").read_text(encoding="utf-8")
        (folder / "nginx.conf").write_text(moved(text, ports, folder), encoding="utf-8")
        urls = [f"http://{HOST}:{port}" for port in ports[2::2]]
        watch = [str(deployed / "watch_replicas.sh"), str(folder / "out"), *urls]
        settings = {"WATCH_SECONDS": str(watch_seconds)}
        with (
            _running(nginx_command(program, folder), folder / "nginx.log", {}) as process,
            _running(watch, folder / "watch.log", settings),
        ):
            _wait_for_port(process, ports[0], folder / "nginx.log")
            yield cls(folder, Targets(f"{HOST}:{ports[1]}", f"http://{HOST}:{ports[0]}"))

    def leaves_out(self, number: int) -> bool:
        """Returns whether nginx excludes a replica, counted from 0."""
        return (self.folder / "out" / str(number + 1)).exists()


def find_nginx() -> str | None:
    """Returns the path of nginx, or None. Debian installs it outside an ordinary user's PATH."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def nginx_command(program: str, folder: Path) -> list[str]:
    """Returns the command line of nginx for the configuration in a folder."""
    # Started by root, nginx would switch to a user that cannot enter a folder of root's.
    user = " user root;" if os.geteuid() == 0 else ""
    return [program, "-e", "stderr", "-c", str(folder / "nginx.conf"), "-g", f"daemon off;{user}"]


def moved(text: str, ports: Sequence[int], folder: Path) -> str:
    """Replaces the ports of a configuration, in the order of `PORTS`, and its folder."""
    others = dict(zip(PORTS, ports, strict=True))
    text = _PORT.sub(lambda port: str(others[int(port[0])]), text)
    return text.replace(FOLDER, str(folder)).replace(STANDARD_OUTPUT, str(folder / "requests.log"))


@contextmanager
def _running(command: Sequence[str], log: Path, settings: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program, and ends its process group with the block."""
    with log.open("wb") as file:
        process = subprocess.Popen(  # noqa: S603 - our own command line
            command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True, env={**os.environ, **settings}
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(STOP_SECONDS)


def _wait_for_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline_seconds = time.monotonic() + NGINX_START_SECONDS
    while True:
        try:
            socket.create_connection((HOST, port), timeout=NGINX_START_SECONDS).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline_seconds:
                raise ServedProcessError(f"nginx did not start: {read_last_line(log)}") from None
            time.sleep(POLL_SECONDS)
        else:
            return


REPLICAS = 3
WATCH_SECONDS = 1.0
# Time for the last ping to be missed and for the requests sent before it to be sent elsewhere.
MISSED_SECONDS = 5.0
REPLICA_POLL_SECONDS = 0.2
_ASKED = re.compile(rb"^dragoman_requests_total\{.*\} [1-9]", re.MULTILINE)

# Returns the command line of a replica, given its HTTP and gRPC ports.
Command = Callable[[tuple[int, int]], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Replicas:
    """Running replicas.

    Attributes:
        protocols: the protocols that reach all replicas.
        left_out: waits until a stalled replica, given its number from 0, receives no more requests.
    """

    each: tuple[ServedProcess, ...]
    targets: Targets
    protocols: tuple[LoadProtocol, ...]
    left_out: Callable[[int], Awaitable[None]]

    @property
    def servers(self) -> tuple[Targets, ...]:
        """Addresses of each replica."""
        return tuple(served.targets for served in self.each)

    async def wait_ready(self) -> None:
        """Waits until all replicas are ready.

        Raises:
            ServedProcessError: if a replica exits or takes too long.
        """
        for served in self.each:
            await served.wait_ready()

    async def wait_used(self, number: int) -> None:
        """Waits until a replica has received a translation request since it started.

        Raises:
            ServedProcessError: if it takes too long.
        """
        http_port, _ = self.each[number].ports
        await until(lambda: asyncio.to_thread(_was_asked, http_port), "a restarted replica receives no requests")

    async def stop(self) -> None:
        """Stops all replicas and waits until they have exited.

        Raises:
            ServedProcessError: if a replica does not exit, or not with status 0.
        """
        await asyncio.gather(*(served.stop() for served in self.each))


@contextmanager
def start_replicas(command: Command, folder: Path, count: int = REPLICAS) -> Iterator[tuple[ServedProcess, ...]]:
    """Starts replicas that log to `folder`, and kills them when the block ends; they are not ready yet."""
    ports = free_ports(2 * count)
    pairs = list(zip(ports[::2], ports[1::2], strict=True))
    with ExitStack() as stack:
        yield tuple(
            stack.enter_context(ServedProcess.run(command(pair), pair, folder / f"replica-{number}.log"))
            for number, pair in enumerate(pairs)
        )


@contextmanager
def behind_nginx(
    each: tuple[ServedProcess, ...], folder: Path, deployed: Path, watch_seconds: float = WATCH_SECONDS
) -> Iterator[Replicas]:
    """Runs nginx in front of the replicas until the block ends; see `Nginx.run`.

    Raises:
        ServedProcessError: if nginx is not installed or does not start.
    """
    ports = (*free_ports(2), *(port for served in each for port in served.ports))
    with Nginx.run(deployed, folder / "nginx", ports, watch_seconds) as nginx:

        async def left_out(number: int) -> None:
            async def leaves_out() -> bool:
                return nginx.leaves_out(number)

            await until(leaves_out, "nginx still sends requests to a stalled replica")

        yield Replicas(each, nginx.targets, ("grpc", "grpc-stream", "rest", "rest-stream"), left_out)


def balanced_by_clients(each: tuple[ServedProcess, ...]) -> Replicas:
    """Returns the replicas for gRPC clients that balance by the published service config."""
    addresses = ",".join(served.targets.grpc for served in each)

    async def left_out(_: int) -> None:
        await asyncio.sleep(KEEPALIVE_SECONDS + KEEPALIVE_TIMEOUT_SECONDS + MISSED_SECONDS)

    return Replicas(each, Targets(f"ipv4:{addresses}", "", balanced=True), ("grpc", "grpc-stream"), left_out)


def free_ports(count: int) -> tuple[int, ...]:
    """Returns unused ports."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        return tuple(listener.getsockname()[1] for listener in listeners)


async def until(condition: Callable[[], Awaitable[bool]], problem: str) -> None:
    """Polls until a condition holds.

    Raises:
        ServedProcessError: with the problem, after START_SECONDS.
    """
    deadline_seconds = time.monotonic() + START_SECONDS
    while not await condition():
        if time.monotonic() > deadline_seconds:
            raise ServedProcessError(problem)
        await asyncio.sleep(REPLICA_POLL_SECONDS)


def _was_asked(http_port: int) -> bool:
    """Returns whether a server has counted requests. A search is many times as fast as parsing all of the metrics."""
    with closing(http.client.HTTPConnection(HOST, http_port, timeout=PROBE_SECONDS)) as connection:
        try:
            connection.request("GET", METRICS_PATH)
            return _ASKED.search(connection.getresponse().read()) is not None
        except (OSError, http.client.HTTPException):
            return False
