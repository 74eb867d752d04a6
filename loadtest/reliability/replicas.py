"""Servers of one bundle in processes of their own, that clients reach through nginx or balance by themselves.

What may happen to them is `loadtest.reliability.replica_mishaps`; called by `loadtest.reliability.chaos_command` and by
`benchmarks.replicas`.
"""

import asyncio
import http.client
import re
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from loadtest.clients import Targets
from loadtest.reliability.nginx import Nginx
from loadtest.request import Protocol
from loadtest.served_process import START_SECONDS, ServedProcess, ServedProcessError
from loadtest.server_metrics import METRICS_PATH
from serve.clients.channel import KEEPALIVE_SECONDS, KEEPALIVE_TIMEOUT_SECONDS
from serve.server_process import HOST, PROBE_SECONDS

REPLICAS = 3
WATCH_SECONDS = 1.0
# For the last ping of a client to be missed, and for what it sent before to be sent elsewhere.
MISSED_SECONDS = 5.0
POLL_SECONDS = 0.2
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
    protocols: tuple[Protocol, ...]
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
        await asyncio.sleep(POLL_SECONDS)


def _was_asked(http_port: int) -> bool:
    """Tells whether a server has counted requests; to parse all of its metrics would take many times as long."""
    with closing(http.client.HTTPConnection(HOST, http_port, timeout=PROBE_SECONDS)) as connection:
        try:
            connection.request("GET", METRICS_PATH)
            return _ASKED.search(connection.getresponse().read()) is not None
        except (OSError, http.client.HTTPException):
            return False
