"""Floods next to well-behaved clients: what the clients get, and what the flood leaves behind in the server."""

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import httpx
import numpy as np

from dragoman.loadtest.clients import OK, Targets, open_clients
from dragoman.loadtest.scenario import LoadProtocol, LoadRequest, RequestKind
from dragoman.serve.clients.channel import ClientSettings
from dragoman.serve.host.server_process import HOST, ServerProcess, reserve_ports
from tests.support.attacks.families import FAMILIES
from tests.support.attacks.run import Attack, Outcome, run_attack
from tests.support.certificates import Authority
from tests.support.live import NO_TLS, WAIT_SECONDS

Transport = Literal["plain", "tls", "mutual"]
# Two clients each.
PROTOCOLS: tuple[LoadProtocol, ...] = ("rest", "rest-stream", "grpc", "grpc-many") * 2
TEXT = "alpha beta gamma."
# A client opens a new connection after this many requests.
REQUESTS_PER_CONNECTION = 20
PAUSE_SECONDS = 0.02
WARM_SECONDS = 2.0
MEBIBYTE = 1 << 20
MORE_BYTES = 32 * MEBIBYTE
# gRPC keeps a few more or less.
MORE_DESCRIPTORS = 10
# A line per request of the clients, and as much for the flood as an operator's disk takes for hours.
LOG_BYTES_PER_REQUEST = 1_000
LOG_BYTES_PER_SECOND = 1_000_000
SLOWDOWN = 3.0


@dataclass(frozen=True, slots=True)
class Usage:
    """Resident memory, open descriptors and log of a server process, the first and the last in bytes."""

    memory_bytes: int
    descriptors: int
    log_bytes: int

    @classmethod
    def read(cls, process_id: int, log: Path) -> "Usage":
        process = Path(f"/proc/{process_id}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text(encoding="ascii").splitlines())
        return cls(int(status["VmRSS"].split()[0]) * 1024, len(list((process / "fd").iterdir())), log.stat().st_size)


@dataclass(slots=True)
class Traffic:
    """What well-behaved clients got: latencies of translations in seconds, and other outcomes."""

    latencies: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def requests(self) -> int:
        return len(self.latencies) + self.errors.total()

    def percentile_ms(self, percentile: float) -> float:
        """Returns a percentile of the latencies in milliseconds; infinity without any translation."""
        return float(np.percentile(self.latencies, percentile)) * 1000 if self.latencies else float("inf")


@dataclass(frozen=True, slots=True)
class Served:
    """A server process under attack, its REST and gRPC port, and how to reach it."""

    process: ServerProcess
    ports: tuple[int, ...]
    log: Path
    targets: Targets

    @property
    def security(self) -> ClientSettings:
        return self.targets.security

    def usage(self) -> Usage:
        return Usage.read(self.process.process_id, self.log)

    def attack(self, name: str, seconds: float) -> Attack:
        files = (self.security.ca_file, self.security.certificate_file, self.security.key_file)
        ca, certificate, key = ("" if file is None else str(file) for file in files)
        http_port, grpc_port = self.ports
        port = grpc_port if name and FAMILIES[name].port == "grpc" else http_port
        return Attack(name, port, seconds, ca=ca, certificate=certificate, key=key)

    async def ask(self, seconds: float) -> Traffic:
        """Runs the well-behaved clients for some seconds."""
        traffic, loop = Traffic(), asyncio.get_running_loop()
        end_seconds = loop.time() + seconds

        async def client(protocol: LoadProtocol) -> None:
            request = LoadRequest((TEXT,), RequestKind(protocol=protocol, timeout_seconds=WAIT_SECONDS))
            while loop.time() < end_seconds:
                async with open_clients(replace(self.targets, connections=1), [protocol]) as sender:
                    for _ in range(REQUESTS_PER_CONNECTION):
                        begun_seconds = loop.time()
                        answer = await sender.send(request)
                        if answer.outcome == OK:
                            traffic.latencies.append(loop.time() - begun_seconds)
                        else:
                            traffic.errors[f"{protocol}: {answer.outcome}"] += 1
                        await asyncio.sleep(PAUSE_SECONDS)
                        if loop.time() >= end_seconds:
                            break

        async with asyncio.TaskGroup() as clients:
            for protocol in PROTOCOLS:
                clients.create_task(client(protocol))
        return traffic

    async def settle(self, before: Usage) -> Usage:
        """Waits until memory and descriptors are back, at most WAIT_SECONDS; returns the last usage."""
        # Closed gRPC channels keep their connections until Python has collected them.
        gc.collect()
        end_seconds = asyncio.get_running_loop().time() + WAIT_SECONDS
        while (after := self.usage()) and not has_recovered(before, after):
            if asyncio.get_running_loop().time() > end_seconds:
                break
            await asyncio.sleep(0.2)
        return after


def has_recovered(before: Usage, after: Usage) -> bool:
    return (
        after.memory_bytes <= before.memory_bytes + MORE_BYTES
        and after.descriptors <= before.descriptors + MORE_DESCRIPTORS
    )


@contextmanager
def serve_under_attack(
    program: Sequence[str], folder: Path, transport: Transport = "plain", *, descriptors: int | None = None
) -> Iterator[Served]:
    """Runs a server and waits until it is ready.

    Args:
        program: command line of `dragoman serve` without ports; see also `fake_command`.
        descriptors: hard limit of open files; None: that of this process.
    """
    authority, settings, security = Authority(folder), dict[str, object](), ClientSettings()
    if transport != "plain":
        settings = authority.settings()
        security = ClientSettings(ca_file=authority.file)
    if transport == "mutual":
        settings["tls_client_ca_file"] = authority.file
        client = authority.issue("client")
        security = replace(security, certificate_file=client["certificate"], key_file=client["key"])
    limit = [] if descriptors is None else ["sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh"]
    scheme = "http" if transport == "plain" else "https"
    with reserve_ports(0, 0) as (http_port, grpc_port):
        settings |= {"http_port": http_port, "grpc_port": grpc_port}
        options = [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", str(value))]
        targets = Targets(f"{HOST}:{grpc_port}", f"{scheme}://{HOST}:{http_port}", security=security)
        log = folder / "server.log"
        process = ServerProcess([*limit, *program, *options], http_port, log)
        process.start()
        try:
            asyncio.run(_wait_ready(targets))
            yield Served(process, (http_port, grpc_port), log, targets)
        finally:
            process.kill()


async def _wait_ready(targets: Targets) -> None:
    verify = targets.security.ssl_context() or NO_TLS
    async with httpx.AsyncClient(verify=verify, trust_env=False) as client, asyncio.timeout(WAIT_SECONDS):
        while True:
            try:
                if (await client.get(f"{targets.rest}/readyz")).status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Findings:
    """A flood as the server and its well-behaved clients saw it.

    Attributes:
        loaded: traffic next to a process that only uses as much of the CPU; None: not measured.
    """

    seconds: float
    traffic: Traffic
    loaded: Traffic | None
    before: Usage
    after: Usage
    attack: Outcome
    kept_bytes: int = 0

    @property
    def log_bytes(self) -> int:
        return self.after.log_bytes - self.before.log_bytes

    def problems(self) -> Iterator[str]:
        if self.traffic.errors:
            yield f"errors: expected none, got {dict(self.traffic.errors)}"
        if self.after.memory_bytes > self.before.memory_bytes + MORE_BYTES + self.kept_bytes:
            yield f"memory: {self.before.memory_bytes / MEBIBYTE:.0f} to {self.after.memory_bytes / MEBIBYTE:.0f} MiB"
        if self.after.descriptors > self.before.descriptors + MORE_DESCRIPTORS:
            yield f"descriptors: {self.before.descriptors} to {self.after.descriptors}"
        max_bytes = LOG_BYTES_PER_REQUEST * self.traffic.requests + LOG_BYTES_PER_SECOND * self.seconds
        if self.log_bytes > max_bytes:
            yield f"log: expected at most {max_bytes:,.0f} bytes, got {self.log_bytes:,}"
        if self.loaded is not None:
            p99_ms, loaded_ms = (item.percentile_ms(99) for item in (self.traffic, self.loaded))
            if p99_ms > SLOWDOWN * loaded_ms:
                yield f"p99: expected at most {SLOWDOWN} times {loaded_ms:.1f} ms, got {p99_ms:.1f} ms"

    def cells(self, name: str) -> Mapping[str, str]:
        """Returns a row of the table of floods."""
        before, after = self.before, self.after
        p99 = " / ".join(f"{item.percentile_ms(99):.1f}" for item in (self.traffic, self.loaded) if item is not None)
        return {
            "flood": name,
            "requests / errors": f"{self.traffic.requests:,} / {self.traffic.errors.total():,}",
            "p99 / at equal CPU load, ms": p99,
            "memory before / after, MiB": f"{before.memory_bytes / MEBIBYTE:.0f} / {after.memory_bytes / MEBIBYTE:.0f}",
            "descriptors before / after": f"{before.descriptors} / {after.descriptors}",
            "log, kB": f"{self.log_bytes / 1000:,.0f}",
        }

    def answers(self, name: str) -> Mapping[str, str]:
        """Returns a row of the table of answers to floods."""
        answers = ", ".join(f"{answer}: {count:,}" for answer, count in sorted(self.attack.answers.items()))
        return {"flood": name, "most connections": f"{self.attack.open:,}", "answers and ends": answers or "none"}


async def run_flood(served: Served, name: str, seconds: float, *, loaded_seconds: float = 0.0) -> Findings:
    """Floods a server with attacks of a family, next to well-behaved clients; `loaded_seconds` of a comparison."""
    await served.ask(WARM_SECONDS)
    before = served.usage()
    traffic, attack = await asyncio.gather(served.ask(seconds), run_attack(served.attack(name, seconds)))
    after = await served.settle(before)
    loaded = None
    if loaded_seconds:
        cpu_seconds = attack.cpu_seconds * loaded_seconds / seconds
        burn = replace(served.attack("", loaded_seconds), cpu_seconds=cpu_seconds)
        loaded, _ = await asyncio.gather(served.ask(loaded_seconds), run_attack(burn))
    return Findings(seconds, traffic, loaded, before, after, attack, FAMILIES[name].kept_bytes)
