"""`dragoman load soak`: hours of mixed load, then a reconciliation of the counts of clients and server.

Meanwhile clients are killed and the model is replaced. At the end every outcome must be one that its kind explains, the
server must be idle, and its memory, files and threads must not have grown.
"""

import asyncio
import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from mmap import PAGESIZE
from pathlib import Path

import aiohttp
import numpy as np
from pydantic import Field
from pydantic_settings import SettingsConfigDict
from rich.console import Console

from dragoman.loadtest.clients import GONE, OK, TIMED_OUT
from dragoman.loadtest.generator import Generators
from dragoman.loadtest.measurement import Run, Watcher
from dragoman.loadtest.protocols import PROTOCOLS
from dragoman.loadtest.reliability.chaos import (
    BEAM,
    LATE,
    Findings,
    Load,
    ReliabilityCommand,
    Row,
    judge,
    kill_client,
    report,
)
from dragoman.loadtest.reliability.replicas import Replicas, alone, start_replicas
from dragoman.loadtest.scenario import LoadProtocol
from dragoman.loadtest.session import LiveView
from dragoman.serve.host.server_process import server_command

ADMIN_KEY = "soak"
RELOADS = "rest other ok"
# Killed clients send streams, where the reconciliation tolerates requests that no client has counted.
KILLED_PROTOCOL: LoadProtocol = "rest-stream"
KILLED_RATE = 50.0
KILLED_AFTER_SECONDS = 0.4
# Tolerance of open files and threads; both are counted without a connection of the load generator.
MORE = 5
# Filling slots for the first time takes memory. In the second half of a long soak the memory must no longer grow.
LASTING_SECONDS = 600.0
MAX_GROWTH_MEBIBYTES = 32.0
MEBIBYTE = 2**20

GOOD = frozenset({OK, "RESOURCE_EXHAUSTED", "429 queue_full"})
CANCELED = {"cancelled_share": 1.0, "cancelled_within_seconds": 0.1}
# The weights are percentages; four in five requests are valid.
MIX: tuple[Row, ...] = (
    ("greedy", {"grpc": 20, "grpc-many": 10, "rest": 20, "grpc-stream": 10, "rest-stream": 10}, {}, GOOD),
    ("beam 4", {"grpc": 5, "rest": 5}, BEAM, GOOD),
    ("canceled", {"grpc-stream": 4, "rest-stream": 4}, CANCELED, GOOD | {GONE}),
    ("tiny deadline", {"grpc-stream": 3, "rest-stream": 3}, {"timeout_seconds": 0.002}, LATE),
    ("blank", {"grpc": 2, "rest": 2}, {"text": " "}, frozenset({"INVALID_ARGUMENT", "400 invalid"})),
    ("too long", {"grpc": 1}, {"text": "word " * 10_000}, frozenset({"INVALID_ARGUMENT"})),
    ("too large", {"rest": 1}, {"text": "word " * 500_000}, frozenset({"413 too_large"})),
)


# The client of a canceled or timed-out request does not learn its outcome on the server.
UNKNOWN_TO_CLIENTS = frozenset({GONE, TIMED_OUT, "DEADLINE_EXCEEDED"})
# Server outcomes by gRPC status.
_STATUSES = {"INVALID_ARGUMENT": "invalid", "RESOURCE_EXHAUSTED": "queue_full", "INTERNAL": "internal"}


def mismatches(
    seen: Mapping[LoadProtocol, Mapping[str, int]], counted: Mapping[str, int], killed: Mapping[LoadProtocol, int]
) -> Iterator[str]:
    """Yields the differences between the counts of clients and server, by interface and outcome.

    `seen` are the clients' counts by protocol and outcome, `counted` the server's, as in "grpc translate ok". `killed`
    bounds the requests that killed clients sent, by protocol.
    """
    for name, protocol in PROTOCOLS.items():
        clients, unknown, interface = Counter[str](), killed.get(name, 0), protocol.interface
        for outcome, count in seen.get(name, {}).items():
            if outcome in UNKNOWN_TO_CLIENTS:
                unknown += count
            else:
                status, _, reason = outcome.partition(" ")
                # Over REST the outcome holds the server's reason itself.
                clients[reason if status.isdecimal() and reason else _STATUSES.get(outcome, outcome)] += count
        names = [item for item in counted if item.startswith(f"{interface} ")]
        server = Counter({label.removeprefix(f"{interface} "): counted[label] for label in names})
        for reason in sorted(clients.keys() | server.keys()):
            if server[reason] < clients[reason] or (server[reason] > clients[reason] and not unknown):
                yield f"{interface}: {reason}: clients {clients[reason]}, server {server[reason]}"
        surplus = server.total() - clients.total()
        if unknown and surplus > unknown:
            yield f"{interface}: server: expected at most {unknown} more requests than clients, got {surplus}"


async def run_soak(
    replicas: Replicas, bundle: Path, load: Load, *, seconds: float, every_seconds: float, watcher: Watcher
) -> Findings:
    """Soaks a ready server of `bundle`; every `every_seconds` a client is killed and the model is replaced."""
    (server,), killed, reloads = replicas.servers, list[int](), list[bool]()

    async def disturb(_generators: Generators, run: Run) -> None:
        await asyncio.sleep(-run.now_seconds)
        while True:
            lost, replaced = await asyncio.gather(_lose_client(replicas, load), replace_model(server.rest, bundle))
            killed.append(lost)
            reloads.append(replaced)
            if run.now_seconds + every_seconds >= seconds:
                return
            await asyncio.sleep(every_seconds)

    (first,), before = await replicas.idle(), _usage(replicas)
    run = await load.run(replicas, seconds, disturb, watcher)
    found = await judge("soak", run, load, replicas)
    (last,), after = await replicas.idle(), _usage(replicas)
    found.figures.update({f"{name}_before": figure for name, figure in before.items()} | after)
    found.figures.update(killed_clients=len(killed), reloads=len(reloads))
    if seconds >= LASTING_SECONDS:
        second_half = [(at, state.resident_bytes / MEBIBYTE) for at, state in run.states if at >= seconds / 2]
        found.figures.update(growth_mebibytes_per_hour=growth_per_hour(second_half))
    if not all(reloads):
        found.problems.append(f"reloads: {reloads.count(False)} of {len(reloads)} replaced no model")
    if first is None or last is None:
        found.problems.append("metrics: expected readings of an idle server before and after the load, got none")
    else:
        seen: defaultdict[LoadProtocol, Counter[str]] = defaultdict(Counter)
        for kind, _ in load.kinds:
            seen[kind.protocol].update(found.outcomes[kind.name])
        counted = {name: count - first.requests.get(name, 0) for name, count in last.requests.items()}
        found.problems.extend(mismatches(seen, counted, {KILLED_PROTOCOL: sum(killed)}))
        if counted.get(RELOADS, 0) != len(reloads):
            found.problems.append(f"reloads: client {len(reloads)}, server {counted.get(RELOADS, 0)}")
    found.problems.extend(leaks(found.figures, seconds))
    return found


async def _lose_client(replicas: Replicas, load: Load) -> int:
    """Kills a client in the middle of its requests; returns an upper bound of them."""

    async def kill(generators: Generators, run: Run) -> None:
        await asyncio.sleep(KILLED_AFTER_SECONDS - run.now_seconds)
        await kill_client(replicas, generators)

    kind, outcomes = load.kinds[0]
    killed = kind.model_copy(update={"protocol": KILLED_PROTOCOL})
    load = replace(load, kinds=[(killed, outcomes)], rate=KILLED_RATE, may_be_lost=True)
    run = await load.run(replicas, 2 * KILLED_AFTER_SECONDS, kill)
    return len(run.plan.requests)


async def replace_model(url: str, bundle: Path) -> bool:
    """Changes the creation date of a bundle atomically; returns whether the server replaces its model."""
    manifest = bundle / "manifest.json"
    content = json.loads(manifest.read_bytes())
    content["provenance"]["created"] = datetime.now(UTC).isoformat()
    changed = manifest.with_suffix(".new")
    changed.write_text(json.dumps(content), encoding="utf-8")
    changed.replace(manifest)
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    async with aiohttp.ClientSession(url, headers=headers) as http, http.post("/v1/admin/reload") as response:
        report = await response.json()
    return response.ok and bool(report.get("replaced"))


def _usage(replicas: Replicas) -> dict[str, float]:
    process = Path(f"/proc/{replicas.victim.process_id}")
    pages = int((process / "statm").read_text(encoding="ascii").split()[1])
    open_files, threads = (len(list((process / kind).iterdir())) for kind in ("fd", "task"))
    return {"memory_mebibytes": pages * PAGESIZE // MEBIBYTE, "open_files": open_files, "threads": threads}


def growth_per_hour(samples: Sequence[tuple[float, float]]) -> float:
    """Returns the growth per hour of values at given seconds, by least squares."""
    seconds, values = np.array(samples).T
    return float(np.polyfit(seconds, values, 1)[0]) * 3600


def leaks(figures: Mapping[str, float], seconds: float) -> Iterator[str]:
    """Yields whether a server has more files or threads than before, or grew in the second half of a long soak."""
    for name in ("open_files", "threads"):
        most = figures[f"{name}_before"] + MORE
        if figures[name] > most:
            yield f"{name}: expected at most {most}, got {figures[name]}"
    grown = figures.get("growth_mebibytes_per_hour", 0.0) * seconds / 2 / 3600
    if grown > MAX_GROWTH_MEBIBYTES:
        yield f"memory: expected at most {MAX_GROWTH_MEBIBYTES} MiB growth in the second half, got {grown:.0f} MiB"


class SoakCommand(ReliabilityCommand):
    """Load a server for hours with valid, invalid, canceled and late requests, and reconcile the counts.

    A copy of the bundle is served. Four in five requests are valid and use all interfaces. The others are canceled,
    have a tiny deadline, are invalid or too large. Meanwhile clients are killed, the model is replaced and metrics are
    read. At the end every outcome must be one that its kind of request explains, the counts of the clients must match
    /metrics, the server must be idle with as many files and threads as before, and it must exit with status 0. The exit
    status is 1 if a check fails. The last line of the output is one JSON document.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_LOAD_SOAK_", frozen=True, extra="forbid")

    duration_seconds: float = Field(3600.0, gt=0, description="Length of the soak.")
    every_seconds: float = Field(10.0, gt=0, description="Interval between client kills and between reloads.")

    def cli_cmd(self) -> None:
        """Runs the soak and prints the result; exits with status 1 if a check fails."""
        report(self._rounds)

    async def _rounds(self, folder: Path) -> list[Findings]:
        load, models, settings = self.load(MIX, 30.0), folder / "models", {"DRAGOMAN_ADMIN_KEY": ADMIN_KEY}
        bundle = Path(shutil.copytree(self.bundle, models / "soaked"))
        with (
            start_replicas(lambda ports: server_command(models, *ports), folder, 1, settings) as processes,
            LiveView.open(Console(stderr=True)) as view,
        ):
            replicas = alone(*processes)
            await replicas.wait_ready()
            view.begin("soak")
            times = {"seconds": self.duration_seconds, "every_seconds": self.every_seconds}
            found = await run_soak(replicas, bundle, load, watcher=view.show, **times)
            await replicas.stop()
        print(found)
        return [found]
