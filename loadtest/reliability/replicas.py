"""Servers of one bundle in separate processes: one alone, or several behind nginx or balanced by their clients.

nginx runs with the configuration of `deploy/nginx`; only ports and folders are replaced.
"""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from dragoman.loadtest.clients import Targets
from dragoman.loadtest.scenario import LoadProtocol
from dragoman.loadtest.server_metrics import MetricsReader, ServerState
from dragoman.serve.clients.channel import KEEPALIVE_SECONDS, KEEPALIVE_TIMEOUT_SECONDS
from dragoman.serve.host.server_process import HOST, POLL_SECONDS, ServerProcess, ServerProcessError, reserve_ports

PROTOCOLS: tuple[LoadProtocol, ...] = ("grpc", "grpc-stream", "grpc-many", "rest", "rest-stream")
# HTTP and gRPC ports in the configuration: nginx's own, then those of each replica.
PORTS = (8000, 8001, 8010, 8011, 8020, 8021, 8030, 8031)
START_SECONDS, STOP_SECONDS = 120.0, 20.0
# Longest time until a server is idle after a load.
IDLE_SECONDS = 20.0
PROBE_SECONDS = 2.0
MISSED_SECONDS = 5.0  # a busy machine notices late

# Returns the command line of a replica by its HTTP and gRPC ports.
Command = Callable[[tuple[int, int]], Sequence[str]]


class ServedProcess(ServerProcess):
    """A server process with its HTTP and gRPC ports and their addresses."""

    def __init__(
        self, command: Sequence[str], ports: tuple[int, int], log: Path, settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(command, ports[0], log, settings)
        self.ports = ports
        self.targets = Targets(f"{HOST}:{ports[1]}", f"http://{HOST}:{ports[0]}")


@dataclass(frozen=True, slots=True)
class Replicas:
    """Running servers.

    Attributes:
        targets: addresses that clients connect to.
        protocols: the protocols that reach all replicas.
        exclusion_seconds: after this time, a stalled replica receives no more requests.
    """

    processes: tuple[ServedProcess, ...]
    targets: Targets
    protocols: tuple[LoadProtocol, ...]
    exclusion_seconds: float

    @property
    def servers(self) -> tuple[Targets, ...]:
        """Addresses of each replica."""
        return tuple(served.targets for served in self.processes)

    @property
    def victim(self) -> ServedProcess:
        """The replica that faults hit."""
        return self.processes[-1]

    async def wait_ready(self) -> None:
        """Waits until all replicas are ready; raises ServerProcessError if one exits or takes too long."""
        await asyncio.gather(*(asyncio.to_thread(served.wait_until_ready, START_SECONDS) for served in self.processes))

    async def start(self, served: ServedProcess) -> None:
        """Starts a replica again, and waits until it is ready and has ended a request."""
        served.start()
        await asyncio.to_thread(served.wait_until_ready, START_SECONDS)
        await _state(served.targets, lambda state: any(state.requests.values()), START_SECONDS)

    async def idle(self) -> list[ServerState | None]:
        """Returns the metrics of each replica once it is idle; None if it is not idle in time."""
        return [await _state(server, lambda state: state.is_idle, IDLE_SECONDS) for server in self.servers]

    async def stop(self) -> None:
        """Stops all replicas; raises ServerProcessError if one does not exit with status 0."""
        await asyncio.gather(*(asyncio.to_thread(served.stop) for served in self.processes))


@contextmanager
def start_replicas(
    command: Command, folder: Path, count: int = 3, settings: Mapping[str, str] | None = None
) -> Iterator[tuple[ServedProcess, ...]]:
    """Starts replicas with logs in a folder and environment variables, and kills them when the block ends."""
    with ExitStack() as stack:
        ports = stack.enter_context(reserve_ports(*[0] * (2 * count)))
        processes = tuple(
            ServedProcess(command(pair), pair, folder / f"replica-{number}.log", settings)
            for number, pair in enumerate(zip(ports[::2], ports[1::2], strict=True))
        )
        for served in processes:
            served.start()
            stack.callback(served.kill)
        yield processes


def alone(served: ServedProcess) -> Replicas:
    """Returns a single server, which nothing excludes."""
    return Replicas((served,), served.targets, PROTOCOLS, 0.0)


def balanced_by_clients(processes: tuple[ServedProcess, ...]) -> Replicas:
    """Returns the replicas for gRPC clients that balance by the published service config."""
    addresses = ",".join(served.targets.grpc for served in processes)
    # Only the first replica has its metrics read during a run.
    targets = Targets(f"ipv4:{addresses}", processes[0].targets.rest, balanced=True)
    exclusion_seconds = KEEPALIVE_SECONDS + KEEPALIVE_TIMEOUT_SECONDS + MISSED_SECONDS
    return Replicas(processes, targets, ("grpc", "grpc-stream"), exclusion_seconds)


@contextmanager
def behind_nginx(
    processes: tuple[ServedProcess, ...], folder: Path, deployed: Path, watch_seconds: float = 1.0
) -> Iterator[Replicas]:
    """Runs nginx in front of three replicas, and the script that watches them, until the block ends.

    `deployed` holds `nginx.conf` and `watch_replicas.sh`. `folder` replaces /run/dragoman and gets the logs. Raises
    OSError or ServerProcessError if nginx is not installed or its configuration cannot be used.
    """
    program = find_nginx()
    if program is None:
        raise ServerProcessError("nginx: not found; install nginx")
    with reserve_ports(0, 0) as own:
        ports = dict(zip(PORTS, (*own, *(port for served in processes for port in served.ports)), strict=True))
        text = (deployed / "nginx.conf").read_text(encoding="utf-8")
        text = re.sub(r"\b80[0-3][01]\b", lambda port: str(ports[int(port[0])]), text)
        text = text.replace("/run/dragoman", str(folder)).replace("/dev/stdout", str(folder / "requests.log"))
        text = text.replace("error_log stderr", f"error_log {folder / 'nginx.log'}")
        (folder / "nginx.conf").write_text(text, encoding="utf-8")
        # Started by root, nginx would switch to a user that cannot enter a folder of root's.
        user = " user root;" if os.geteuid() == 0 else ""
        nginx = [program, "-e", "stderr", "-c", str(folder / "nginx.conf"), "-g", f"daemon off;{user}"]
        checked = subprocess.run([*nginx, "-t"], capture_output=True, text=True, check=False)  # noqa: S603 - our own command
        if checked.returncode != 0:
            raise ServerProcessError(f"nginx: {checked.stderr.strip()}")
        watch = [
            str(deployed / "watch_replicas.sh"),
            str(folder / "out"),
            *(served.targets.rest for served in processes),
        ]
        exclusion_seconds = watch_seconds + PROBE_SECONDS + MISSED_SECONDS
        targets = Targets(f"{HOST}:{own[1]}", f"http://{HOST}:{own[0]}")
        with _running(nginx), _running(watch, WATCH_SECONDS=str(watch_seconds)):
            yield Replicas(processes, targets, ("grpc", "grpc-stream", "rest", "rest-stream"), exclusion_seconds)


def find_nginx() -> str | None:
    """Returns the path of nginx, or None. Debian installs it outside an ordinary user's PATH."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@contextmanager
def _running(command: Sequence[str], **settings: str) -> Iterator[None]:
    """Runs a program, and ends its process group with the block."""
    quiet, environment = subprocess.DEVNULL, {**os.environ, **settings}
    process = subprocess.Popen(command, stderr=quiet, start_new_session=True, env=environment)  # noqa: S603 - ours
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


async def _state(server: Targets, condition: Callable[[ServerState], bool], seconds: float) -> ServerState | None:
    deadline_seconds = time.monotonic() + seconds
    async with MetricsReader.open(server) as metrics:
        while time.monotonic() < deadline_seconds:
            state = await metrics.read()
            if state is not None and condition(state):
                return state
            await asyncio.sleep(POLL_SECONDS)
    return None
