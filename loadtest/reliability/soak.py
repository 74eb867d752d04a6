"""`dragoman load soak`: serves a bundle for hours under mixed load and reconciles the counts.

One request in five is canceled, has a tiny deadline, is too large or is invalid. Meanwhile clients are killed, metrics
are read and the model is replaced. At the end the counts of clients and server must match, every outcome must be one
that its kind explains, and the server's slots and queue must be empty.
"""

import asyncio
import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
from pydantic import Field
from pydantic_core import to_json
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict
from rich.console import Console

from loadtest.clients import GONE, OK, TIMED_OUT
from loadtest.command import exit_with_message
from loadtest.generator import Generators
from loadtest.measurement import Run, Watcher, measure
from loadtest.plan import draw_plan
from loadtest.scenario import (
    ConstantPhase,
    LoadProtocol,
    PoissonPhase,
    RequestKind,
    Scenario,
    ScenarioError,
    SearchOptions,
    SentencesPath,
    SourceLanguage,
    TargetLanguage,
    read_sentences,
)
from loadtest.served_process import POLL_SECONDS, ServedProcess, ServedProcessError
from loadtest.server_metrics import MetricsReader, ServerState, mismatches
from loadtest.session import LiveView
from serve.server_process import choose_ports, server_command

ADMIN_KEY = "soak"
RELOAD_PATH = "/v1/admin/reload"
RELOADS = "rest other ok"
PHASE = "soak"
SETTLE_SECONDS = 20.0
# Killed clients send streams, where the reconciliation tolerates requests that no client has counted.
KILLED_PROTOCOL: LoadProtocol = "rest-stream"
KILLED_RATE = 50.0
KILLED_AFTER_SECONDS = 0.4
# Tolerance between start and end; both are counted without a connection of the load generator.
MORE_OPEN_FILES = 5
# Filling slots for the first time takes memory. In the second half of a long soak the memory must no longer grow.
LASTING_SECONDS = 600.0
MOST_GROWTH_BYTES = 32 * 2**20

REFUSED = frozenset({"RESOURCE_EXHAUSTED", "429 queue_full"})
LATE = frozenset({TIMED_OUT, "DEADLINE_EXCEEDED", "504 deadline_exceeded"})


@dataclass(frozen=True, slots=True)
class SoakKind:
    """A kind of requests and the outcomes that it explains."""

    requests: RequestKind
    outcomes: frozenset[str]


def soak_kinds(source_language: str, target_language: str) -> list[SoakKind]:
    """Returns the kinds of requests, four in five of them valid. The weights are percentages."""
    good = frozenset({OK}) | REFUSED
    beam = SearchOptions(beam_size=4)
    kinds: list[tuple[str, float, LoadProtocol, dict[str, object], frozenset[str]]] = [
        ("greedy", 20, "grpc", {}, good),
        ("greedy", 10, "grpc-many", {}, good),
        ("greedy", 20, "rest", {}, good),
        ("greedy", 10, "grpc-stream", {}, good),
        ("greedy", 10, "rest-stream", {}, good),
        ("beam 4", 5, "grpc", {"options": beam}, good),
        ("beam 4", 5, "rest", {"options": beam}, good),
        ("cancelled", 4, "grpc-stream", {"cancelled_share": 1.0, "cancelled_within_seconds": 0.1}, good | {GONE}),
        ("cancelled", 4, "rest-stream", {"cancelled_share": 1.0, "cancelled_within_seconds": 0.1}, good | {GONE}),
        ("tiny deadline", 3, "grpc-stream", {"timeout_seconds": 0.002}, good | LATE),
        ("tiny deadline", 3, "rest-stream", {"timeout_seconds": 0.002}, good | LATE),
        ("blank", 2, "grpc", {"text": " "}, frozenset({"INVALID_ARGUMENT"})),
        ("blank", 2, "rest", {"text": " "}, frozenset({"400 invalid"})),
        ("too long", 1, "grpc", {"text": "word " * 10_000}, frozenset({"INVALID_ARGUMENT"})),
        ("too large", 1, "rest", {"text": "word " * 500_000}, frozenset({"413 too_large"})),
    ]
    common = {"source_language": source_language, "target_language": target_language, "timeout_seconds": 30.0}
    return [
        SoakKind(
            RequestKind.model_validate(
                {"name": f"{name}, {protocol}", "weight": weight, "protocol": protocol, **common, **options}
            ),
            outcomes,
        )
        for name, weight, protocol, options, outcomes in kinds
    ]


@dataclass(slots=True)
class SoakResult:
    """The result of a soak.

    Attributes:
        outcomes: ended requests by kind and outcome.
        resident_bytes: of the server at the start, at half time and at the end.
        open_files: of the server at the start and at the end.
        problems: violated invariants.
    """

    outcomes: dict[str, dict[str, int]] = field(default_factory=dict)
    killed_clients: int = 0
    reloads: int = 0
    resident_bytes: tuple[int, int, int] = (0, 0, 0)
    open_files: tuple[int, int] = (0, 0)
    problems: list[str] = field(default_factory=list)


class Soak:
    """A soak of one server, which changes the server's bundle.

    The server must be ready, serve only that bundle, and accept the admin key.
    """

    def __init__(
        self, served: ServedProcess, bundle: Path, kinds: Sequence[SoakKind], sentences: Sequence[str], seed: int
    ) -> None:
        self._served = served
        self._bundle = bundle
        self._kinds = kinds
        self._sentences = sentences
        self._seed = seed
        self._killed_requests = 0
        self._result = SoakResult()

    async def run(self, rate: float, seconds: float, every_seconds: float, watcher: Watcher) -> SoakResult:
        """Runs the soak; clients are killed and the model is reloaded every `every_seconds`."""
        kinds = tuple(kind.requests for kind in self._kinds)
        phase = PoissonPhase(name=PHASE, arrivals="poisson", rate=rate, duration_seconds=seconds)
        plan = draw_plan(Scenario(warm_up_seconds=0, requests=kinds, phases=(phase,)), self._sentences, self._seed)
        async with MetricsReader.open(self._served.targets) as metrics:
            first = await self._settle(metrics)
        async with (
            MetricsReader.open(self._served.targets) as metrics,
            Generators.run(1, self._served.targets, {kind.protocol for kind in kinds}) as generators,
        ):

            async def disturb(run: Run) -> None:
                await asyncio.gather(self._kill_clients(run, every_seconds), self._replace(run, every_seconds))

            run = await measure(generators, plan, metrics, disturb=disturb, watcher=watcher)
        async with MetricsReader.open(self._served.targets) as metrics:
            last = await self._settle(metrics)
        self._judge(run, first, last)
        return self._result

    async def _kill_clients(self, run: Run, every_seconds: float) -> None:
        """Kills clients in the middle of their requests, until the run is over."""
        phase = ConstantPhase(
            name="killed", arrivals="constant", rate=KILLED_RATE, duration_seconds=KILLED_AFTER_SECONDS * 2
        )
        asked = self._kinds[0].requests
        kind = RequestKind(
            protocol=KILLED_PROTOCOL, source_language=asked.source_language, target_language=asked.target_language
        )
        plan = draw_plan(Scenario(warm_up_seconds=0, requests=(kind,), phases=(phase,)), self._sentences, self._seed)
        async for _ in self._moments(run, every_seconds):
            async with (
                MetricsReader.open(self._served.targets) as metrics,
                Generators.run(1, self._served.targets, {KILLED_PROTOCOL}) as generators,
            ):

                async def kill(killed: Run, generators: Generators = generators) -> None:
                    await asyncio.sleep(KILLED_AFTER_SECONDS - killed.now_seconds)
                    os.kill(generators.process_ids[0], signal.SIGKILL)

                self._killed_requests += len(plan.requests)
                await measure(generators, plan, metrics, disturb=kill, may_be_lost=True)
                self._result.killed_clients += 1

    async def _replace(self, run: Run, every_seconds: float) -> None:
        """Changes the bundle and has the server reload it, until the run is over."""
        headers = {"authorization": f"Bearer {ADMIN_KEY}"}
        async with aiohttp.ClientSession(self._served.targets.rest) as http:
            async for _ in self._moments(run, every_seconds):
                change_manifest(self._bundle)
                async with http.post(RELOAD_PATH, headers=headers) as response:
                    report = await response.json()
                self._result.reloads += 1
                if response.status != HTTPStatus.OK or not report.get("replaced"):
                    self._result.problems.append(f"reload: expected a replaced model, got {report}")

    async def _moments(self, run: Run, every_seconds: float) -> AsyncIterator[None]:
        """Yields at least once, then at every interval of the run."""
        await asyncio.sleep(max(0.0, -run.now_seconds))
        yield
        while run.now_seconds + every_seconds < run.record.plan.duration_seconds:
            await asyncio.sleep(every_seconds)
            yield

    async def _settle(self, metrics: MetricsReader) -> ServerState | None:
        """Returns the metrics once the server is idle; None if it does not become idle in time."""
        for _ in range(round(SETTLE_SECONDS / POLL_SECONDS)):
            state = await metrics.read()
            if state is not None and state.rows == state.waiting == state.in_flight == 0:
                return state
            await asyncio.sleep(POLL_SECONDS)
        return None

    def _judge(self, run: Run, first: ServerState | None, last: ServerState | None) -> None:
        result = self._result
        seen: dict[LoadProtocol, Counter[str]] = {}
        for kind in self._kinds:
            tally = run.record.tally_of_kind(kind.requests.name, PHASE)
            result.outcomes[kind.requests.name] = dict(tally.outcomes)
            seen.setdefault(kind.requests.protocol, Counter()).update(tally.outcomes)
            result.problems += (
                f"{kind.requests.name}: {count} x {outcome}: unexpected outcome"
                for outcome, count in tally.outcomes.items()
                if outcome not in kind.outcomes
            )
            if tally.sent != tally.ended:
                result.problems.append(f"{kind.requests.name}: {tally.sent - tally.ended} requests without an outcome")
        if first is None or last is None:
            result.problems.append("the server did not become idle, or does not answer")
            return
        seconds = run.record.plan.duration_seconds
        half = next((state for second, state in run.states if second >= seconds / 2), last)
        result.resident_bytes = (first.resident_bytes, half.resident_bytes, last.resident_bytes)
        result.open_files = (first.open_files, last.open_files)
        result.problems += [*self._count(seen, first, last), *growth(result.resident_bytes, seconds)]

    def _count(self, seen: dict[LoadProtocol, Counter[str]], first: ServerState, last: ServerState) -> Iterator[str]:
        counted = {name: count - first.requests.get(name, 0) for name, count in last.requests.items()}
        yield from mismatches(seen, counted, {KILLED_PROTOCOL: self._killed_requests})
        if counted.get(RELOADS, 0) != self._result.reloads:
            yield f"reloads: client {self._result.reloads}, server {counted.get(RELOADS, 0)}"
        before, after = self._result.open_files
        if after > before + MORE_OPEN_FILES:
            yield f"open files: expected at most {before + MORE_OPEN_FILES}, got {after}"


def growth(resident_bytes: tuple[int, int, int], seconds: float) -> Iterator[str]:
    """Yields a problem if the server's memory grows in the second half of a long soak.

    `resident_bytes` are those at the start, at half time and at the end.
    """
    _, half_bytes, end_bytes = resident_bytes
    if seconds >= LASTING_SECONDS and end_bytes - half_bytes > MOST_GROWTH_BYTES:
        grown, most = (end_bytes - half_bytes) / 2**20, MOST_GROWTH_BYTES / 2**20
        yield f"memory: expected at most {most:.0f} MiB growth in the second half, got {grown:.0f} MiB"


def change_manifest(bundle: Path) -> None:
    """Changes the creation date in the manifest atomically, so that the bundle counts as another one."""
    manifest = bundle / "manifest.json"
    content = json.loads(manifest.read_bytes())
    content["provenance"]["created"] = datetime.now(UTC).isoformat()
    changed = manifest.with_suffix(".new")
    changed.write_text(json.dumps(content), encoding="utf-8")
    changed.replace(manifest)


MEGABYTE = 1 << 20


class SoakCommand(BaseSettings):
    """Load a server for hours with valid, invalid, canceled and late requests, and reconcile the counts.

    A copy of the bundle is served in a separate process. Four in five requests are valid and use all interfaces. The
    others are canceled, have a tiny deadline, are invalid or too large. Meanwhile clients are killed, the model is
    replaced and metrics are read. At the end every outcome must be one that its kind of request explains, the counts of
    the clients must match /metrics, the server's slots and queue must be empty, and the server must exit with status 0.
    The exit status is 1 if a check fails. The last line of the output is one JSON document.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_LOAD_SOAK_", frozen=True, extra="forbid")

    bundle: CliPositionalArg[Path] = Field(description="folder written by `dragoman export`")
    rate: float = Field(20.0, gt=0, description="Requests per second over all interfaces.")
    duration_seconds: float = Field(3600.0, gt=0, description="Length of the soak.")
    every_seconds: float = Field(10.0, gt=0, description="Interval between client kills and between reloads.")
    sentences: SentencesPath = None
    source_language: SourceLanguage = ""
    target_language: TargetLanguage = ""
    seed: int = Field(1, ge=0, description="Seed of the send times and requests.")

    def cli_cmd(self) -> None:
        """Runs the soak and prints the result; exits with status 1 if a check fails."""
        with exit_with_message("dragoman load soak"), TemporaryDirectory(prefix="dragoman-") as folder:
            models = Path(folder) / "models"
            ports = choose_ports(0, 0)
            try:
                bundle = Path(shutil.copytree(self.bundle, models / "soaked"))
                command = server_command(models, *ports)
                log = Path(folder) / "server.log"
                with ServedProcess.run(command, ports, log, {"DRAGOMAN_ADMIN_KEY": ADMIN_KEY}) as served:
                    result = asyncio.run(self.run(served, bundle))
            except (OSError, ServedProcessError) as error:
                raise ScenarioError(str(error)) from error
        print(format_soak(result))
        print(to_json(asdict(result)).decode())
        if result.problems:
            raise SystemExit(1)

    async def run(self, served: ServedProcess, bundle: Path) -> SoakResult:
        """Runs the soak, then stops the server.

        Raises:
            ScenarioError: if sentences cannot be read.
            ServedProcessError: if the server does not start, or does not exit with status 0.
        """
        sentences = read_sentences(self.sentences)
        await served.wait_ready()
        soak = Soak(served, bundle, soak_kinds(self.source_language, self.target_language), sentences, self.seed)
        with LiveView.open(Console(stderr=True)) as view:
            view.begin("soak")
            result = await soak.run(self.rate, self.duration_seconds, self.every_seconds, view.show)
        await served.stop()
        return result


def format_soak(result: SoakResult) -> str:
    """Formats the result of a soak."""
    lines = [
        f"{kind}: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        for kind, outcomes in result.outcomes.items()
    ]
    memory = " to ".join(f"{size / MEGABYTE:.0f}" for size in result.resident_bytes)
    files = " to ".join(map(str, result.open_files))
    lines.append(
        f"{result.killed_clients} clients killed, {result.reloads} reloads; memory {memory} MiB, open files {files}"
    )
    lines += [f"WRONG: {problem}" for problem in result.problems] or ["the counts of clients and server match"]
    return "\n".join(lines)
