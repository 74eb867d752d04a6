"""Servers of one bundle in processes of their own, that clients reach through nginx or balance by themselves.

What may happen to them is `loadtest.reliability.chaos_load`; called by `loadtest.reliability.chaos_command` and by
`benchmarks.replicas`.

nginx in front of three replicas, as `deploy/nginx` has it, on ports and in a folder of our choice.

The file is used as it is, but for ports and folder; who watches the replicas for nginx runs beside it. Knows nothing of
replicas but where they are; called by `loadtest.reliability.replicas`.
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

# Of REST and of gRPC: nginx's own, and those of each replica.
PORTS = (8000, 8001, 8010, 8011, 8020, 8021, 8030, 8031)
FOLDER = "/run/dragoman"
STANDARD_OUTPUT = "/dev/stdout"
NGINX_START_SECONDS = 20.0
STOP_SECONDS = 20.0
_PORT = re.compile(r"\b80[0-3][01]\b")


@dataclass(frozen=True, slots=True)
class Nginx:
    """nginx that runs.

    Attributes:
        folder: in place of /run/dragoman.
        targets: where it is asked.
    """

    folder: Path
    targets: Targets

    @classmethod
    @contextmanager
    def run(cls, deployed: Path, folder: Path, ports: Sequence[int], watch_seconds: float) -> Iterator[Self]:
        """Runs nginx, and who watches the replicas, until the block ends.

        Args:
            deployed: the folder with `nginx.conf` and `watch_replicas.sh`.
            folder: for everything that they write.
            ports: in place of `PORTS`.
            watch_seconds: between two probes of a replica.

        Raises:
            ServedProcessError: if nginx is not installed, or does not start.
        """
        program = find_nginx()
        if program is None:
            raise ServedProcessError("nginx is not installed")
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
        """Tells whether it asks a replica nothing, counted from 0."""
        return (self.folder / "out" / str(number + 1)).exists()


def find_nginx() -> str | None:
    """Returns where nginx is; None: it is not installed. Debian keeps it where only root looks."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def nginx_command(program: str, folder: Path) -> list[str]:
    """Returns the command line of nginx with the configuration in a folder."""
    # Else root's nginx would work as somebody who may not look into a folder of root's.
    user = " user root;" if os.geteuid() == 0 else ""
    return [program, "-e", "stderr", "-c", str(folder / "nginx.conf"), "-g", f"daemon off;{user}"]


def moved(text: str, ports: Sequence[int], folder: Path) -> str:
    """Returns a configuration with other ports, in the order of `PORTS`, and another folder."""
    others = dict(zip(PORTS, ports, strict=True))
    text = _PORT.sub(lambda port: str(others[int(port[0])]), text)
    return text.replace(FOLDER, str(folder)).replace(STANDARD_OUTPUT, str(folder / "requests.log"))


@contextmanager
def _running(command: Sequence[str], log: Path, settings: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program and all that it starts."""
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
# For the last ping of a client to be missed, and for what it sent before to be sent elsewhere.
MISSED_SECONDS = 5.0
REPLICA_POLL_SECONDS = 0.2
_ASKED = re.compile(rb"^dragoman_requests_total\{.*\} [1-9]", re.MULTILINE)

# Returns the command line of a replica, given its ports.
Command = Callable[[tuple[int, int]], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Replicas:
    """Servers that run.

    Attributes:
        each: of them.
        targets: where clients ask.
        protocols: over which they reach all of them.
        left_out: returns once nothing is sent any more to a replica that stands still; given its number, from 0.
    """

    each: tuple[ServedProcess, ...]
    targets: Targets
    protocols: tuple[LoadProtocol, ...]
    left_out: Callable[[int], Awaitable[None]]

    @property
    def servers(self) -> tuple[Targets, ...]:
        """Where each of them is."""
        return tuple(served.targets for served in self.each)

    async def wait_ready(self) -> None:
        """Returns once all are ready.

        Raises:
            ServedProcessError: if one is not, for too long.
        """
        for served in self.each:
            await served.wait_ready()

    async def wait_used(self, number: int) -> None:
        """Returns once a replica was asked for a translation since it started.

        Raises:
            ServedProcessError: if nobody asks it.
        """
        http_port, _ = self.each[number].ports
        await until(lambda: asyncio.to_thread(_was_asked, http_port), "a replica that started again is asked nothing")

    async def stop(self) -> None:
        """Asks all to end, and waits until they have.

        Raises:
            ServedProcessError: if one ends otherwise than with exit status 0, or not at all.
        """
        await asyncio.gather(*(served.stop() for served in self.each))


@contextmanager
def start_replicas(command: Command, folder: Path, count: int = REPLICAS) -> Iterator[tuple[ServedProcess, ...]]:
    """Runs replicas until the block ends; they are not ready yet.

    Args:
        command: of a replica.
        folder: for what they log.
        count: how many.
    """
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
    """Runs nginx in front of replicas until the block ends.

    Args:
        each: of the replicas.
        folder: for what nginx writes.
        deployed: see `Nginx.run`.
        watch_seconds: between two probes of a replica.

    Raises:
        ServedProcessError: if nginx cannot be had.
    """
    ports = (*free_ports(2), *(port for served in each for port in served.ports))
    with Nginx.run(deployed, folder / "nginx", ports, watch_seconds) as nginx:

        async def left_out(number: int) -> None:
            async def leaves_out() -> bool:
                return nginx.leaves_out(number)

            await until(leaves_out, "nginx asks a replica that stands still")

        yield Replicas(each, nginx.targets, ("grpc", "grpc-stream", "rest", "rest-stream"), left_out)


def balanced_by_clients(each: tuple[ServedProcess, ...]) -> Replicas:
    """Returns replicas that clients over gRPC take turns among, as the published service config says."""
    addresses = ",".join(served.targets.grpc for served in each)

    async def left_out(_: int) -> None:
        await asyncio.sleep(KEEPALIVE_SECONDS + KEEPALIVE_TIMEOUT_SECONDS + MISSED_SECONDS)

    return Replicas(each, Targets(f"ipv4:{addresses}", "", balanced=True), ("grpc", "grpc-stream"), left_out)


def free_ports(count: int) -> tuple[int, ...]:
    """Returns ports that nobody listens on."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        return tuple(listener.getsockname()[1] for listener in listeners)


async def until(condition: Callable[[], Awaitable[bool]], problem: str) -> None:
    """Returns once a condition holds.

    Raises:
        ServedProcessError: with the problem, if that takes too long.
    """
    deadline_seconds = time.monotonic() + START_SECONDS
    while not await condition():
        if time.monotonic() > deadline_seconds:
            raise ServedProcessError(problem)
        await asyncio.sleep(REPLICA_POLL_SECONDS)


def _was_asked(http_port: int) -> bool:
    """Tells whether a server has counted requests; to parse all of its metrics would take many times as long."""
    with closing(http.client.HTTPConnection(HOST, http_port, timeout=PROBE_SECONDS)) as connection:
        try:
            connection.request("GET", METRICS_PATH)
            return _ASKED.search(connection.getresponse().read()) is not None
        except (OSError, http.client.HTTPException):
            return False
