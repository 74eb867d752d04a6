"""`dragoman load chaos`: rounds of load with one fault each.

Every request has exactly one outcome, unless its client was killed, and the fault explains the outcome. After the fault
every request is answered. At the end every server is idle.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_core import to_json
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from dragoman.loadtest import scenario
from dragoman.loadtest.clients import NO_RESULT, OK, TIMED_OUT
from dragoman.loadtest.generator import Generators
from dragoman.loadtest.measurement import Run, Watcher, measure, nothing, stall
from dragoman.loadtest.plan import draw_plan
from dragoman.loadtest.reliability.replicas import (
    PROTOCOLS,
    Replicas,
    alone,
    balanced_by_clients,
    behind_nginx,
    start_replicas,
)
from dragoman.loadtest.scenario import LoadProtocol, PoissonPhase, RequestKind, Scenario, read_sentences
from dragoman.loadtest.server_metrics import MetricsReader
from dragoman.serve.host.server_process import server_command

PROCESSES = 2
FAULT_AT = 1 / 4
STALL_SECONDS = 1.0
# Time to restore lost connections: the longest gRPC reconnect backoff and a margin.
RECONNECT_SECONDS = 1.5
# Longest recovery of a server, and of replicas. Later, no request is sent, which fails the round.
RECOVERY_SECONDS, REPLICAS_RECOVERY_SECONDS = 60.0, 180.0
# Neither nginx nor gRPC retries a stream that has begun.
UNARY = frozenset({"grpc", "rest"})
# The server's default: several times what nginx or the clients need to notice that a replica is leaving.
LAME_DUCK_SECONDS = 5.0
BEAM = {"options": {"beam_size": 4}}
# Name, weights by protocol, options and allowed outcomes of some kinds of requests.
Row = tuple[str, Mapping[LoadProtocol, float], Mapping[str, object], frozenset[str]]

ANSWERED = frozenset({OK})
LATE = frozenset({OK, TIMED_OUT, "DEADLINE_EXCEEDED", "504 deadline_exceeded", "RESOURCE_EXHAUSTED", "429 queue_full"})
_LOST = {"ClientConnectionResetError", "ServerDisconnectedError", "ClientConnectorError", "503 not_ready", NO_RESULT}
LOST_CONNECTION = frozenset(_LOST | {"UNAVAILABLE", "ClientOSError", "ClientPayloadError", "ConnectionResetError"})
Disturbance = Callable[[Generators, Run], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Load:
    """Requests of several kinds at random times, at a mean rate per second; the seed determines times and requests.

    Each kind has the outcomes that are allowed. With `retries`, gRPC clients retry by the published service config. If
    a client is killed, its requests `may_be_lost`: without an outcome.
    """

    kinds: Sequence[tuple[RequestKind, frozenset[str]]]
    sentences: Sequence[str]
    rate: float
    seed: int
    retries: bool = False
    may_be_lost: bool = False

    async def run(
        self, replicas: Replicas, seconds: float, disturb: Disturbance, watcher: Watcher = lambda _run: None
    ) -> Run:
        """Sends the load and disturbs it; returns when every request has ended or died with its client."""
        phase = PoissonPhase(rate=self.rate, duration_seconds=seconds)
        kinds, targets = tuple(kind for kind, _ in self.kinds), replace(replicas.targets, retries=self.retries)
        plan = draw_plan(Scenario(warm_up_seconds=0, requests=kinds, phases=(phase,)), self.sentences, self.seed)
        async with (
            MetricsReader.open(replicas.servers[0]) as metrics,
            Generators.run(PROCESSES, targets, {kind.protocol for kind in kinds}) as generators,
        ):
            with_them, lost = partial(disturb, generators), self.may_be_lost
            return await measure(generators, plan, metrics, disturb=with_them, watcher=watcher, may_be_lost=lost)


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of a disturbed run: ended requests by kind and outcome, named figures, and violated invariants."""

    name: str
    outcomes: dict[str, dict[str, int]] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.name}: " + ", ".join(f"{name} {figure:.10g}" for name, figure in self.figures.items())]
        for kind, outcomes in self.outcomes.items():
            lines.append(f"  {kind}: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())))
        return "\n".join([*lines, *(f"  WRONG: {problem}" for problem in self.problems)])


async def judge(name: str, run: Run, load: Load, replicas: Replicas) -> Findings:
    """Checks that every request has an allowed outcome, and that the servers become idle."""
    found, seen = Findings(name), run.samples.kinds()
    for kind, allowed in load.kinds:
        found.outcomes[kind.name] = outcomes = dict(seen[kind.name].outcomes) if kind.name in seen else {}
        unexpected = [f"{count} x {outcome}" for outcome, count in outcomes.items() if outcome not in allowed]
        found.problems.extend(f"{kind.name}: {item}: unexpected outcome" for item in unexpected)
    if run.samples.in_flight and not load.may_be_lost:
        found.problems.append(f"{run.samples.in_flight} requests without an outcome")
    idle = zip(replicas.servers, await replicas.idle(), strict=True)
    found.problems.extend(f"{server.rest}: not idle" for server, state in idle if state is None)
    return found


async def _stop_answering(replicas: Replicas, _generators: Generators) -> None:
    replicas.victim.send(signal.SIGSTOP)
    await asyncio.sleep(replicas.exclusion_seconds)


async def _restart_all(replicas: Replicas, _generators: Generators) -> None:
    for served in replicas.processes:
        await asyncio.to_thread(served.stop)
        await replicas.start(served)


async def _kill_server(replicas: Replicas, _generators: Generators) -> None:
    replicas.victim.kill()
    await replicas.start(replicas.victim)
    await asyncio.sleep(RECONNECT_SECONDS)


async def _replace_server(replicas: Replicas) -> None:
    """Kills and starts the victim, as a process supervisor does with a process that is not live."""
    replicas.victim.kill()
    replicas.victim.start()
    await replicas.wait_ready()


async def kill_client(_replicas: Replicas, generators: Generators) -> None:
    """Kills a client."""
    os.kill(generators.process_ids[0], signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault to inject.

    Attributes:
        happen: injects the fault, and returns when the recovery is complete.
        outcomes: outcomes that the fault explains.
        retried: whether all requests are unary and gRPC clients retry them by the published service config.
        mend: cleans up after the round.
        recovery_seconds: bound of the time from the fault to the recovery.
    """

    name: str
    happen: Callable[[Replicas, Generators], Awaitable[None]]
    outcomes: frozenset[str]
    kills_client: bool = False
    retried: bool = False
    mend: Callable[[Replicas], Awaitable[None]] = nothing
    recovery_seconds: float = RECOVERY_SECONDS


FAULTS = (
    Fault("nothing", nothing, ANSWERED),
    Fault("server stalled", lambda replicas, _: stall(replicas.victim.process_id, STALL_SECONDS), LATE),
    Fault("server killed", _kill_server, LATE | LOST_CONNECTION),
    Fault("client stalled", lambda _, generators: stall(generators.process_ids[0], STALL_SECONDS), LATE),
    Fault("client killed", kill_client, ANSWERED, kills_client=True),
)
_ReplicaFault = partial(Fault, recovery_seconds=REPLICAS_RECOVERY_SECONDS)
REPLICA_FAULTS = (
    FAULTS[0],
    _ReplicaFault("all replicas restarted in turn", _restart_all, ANSWERED),
    _ReplicaFault("a replica killed and started again", _kill_server, ANSWERED, retried=True),
    _ReplicaFault("a replica stalled", _stop_answering, LATE, retried=True, mend=_replace_server),
)


async def run_round(replicas: Replicas, fault: Fault, load: Load, seconds: float) -> Findings:
    """Runs a round of load and injects a fault after its first quarter; `seconds` do not include the fault.

    The figure `sent` includes planned requests of a killed client, and `lost` are requests without an outcome. Raises
    ServerProcessError if a server does not recover.
    """
    protocols = [protocol for protocol in replicas.protocols if not fault.retried or protocol in UNARY]
    kinds = [(kind, fault.outcomes) for kind, _ in load.kinds if kind.protocol in protocols]
    over_seconds, lost = 0.0, fault.kills_client
    load = replace(load, kinds=kinds, retries=fault.retried, may_be_lost=lost)

    async def disturb(generators: Generators, run: Run) -> None:
        nonlocal over_seconds
        await asyncio.sleep(seconds * FAULT_AT - run.now_seconds)
        await fault.happen(replicas, generators)
        over_seconds = run.now_seconds
        if not lost:
            await asyncio.sleep(seconds * (1 - FAULT_AT))
            generators.halt()

    # The requests of a killed client are only known if the plan is run to its end.
    run = await load.run(replicas, seconds if lost else seconds + fault.recovery_seconds, disturb)
    await fault.mend(replicas)
    found, samples = await judge(fault.name, run, load, replicas), run.samples
    sent = len(run.plan.requests) if lost else len(samples.begun)
    after = samples.between(over_seconds).outcomes
    found.figures.update(sent=sent, ok=samples.outcomes[OK], lost=sent - samples.outcomes.total())
    found.figures.update(recovered_seconds=round(over_seconds, 1), ended_afterwards=after.total())
    if lost and not found.figures["lost"]:
        found.problems.append("no request was lost with the killed client")
    if not after.total():
        found.problems.append("no request was sent after the recovery; raise --round-seconds")
    if after.total() > after[OK]:
        found.problems.append(f"{after.total() - after[OK]} requests failed after the recovery")
    return found


class ReliabilityCommand(BaseSettings):
    """Options of the commands that serve a bundle, load it and disturb it."""

    bundle: CliPositionalArg[Path] = Field(description="folder written by `dragoman export`")
    rate: scenario.Rate = Field(20.0, description="Requests per second over all interfaces.")
    sentences: scenario.SentencesPath = None
    source_language: scenario.SourceLanguage = ""
    target_language: scenario.TargetLanguage = ""
    seed: int = Field(1, ge=0, description="Seed of the send times and requests.")

    def load(self, rows: Iterable[Row], timeout_seconds: float) -> Load:
        """Returns the load of the kinds in the rows; raises ScenarioError if sentences cannot be read."""
        kinds: list[tuple[RequestKind, frozenset[str]]] = []
        common = self.model_dump(include={"source_language", "target_language"}) | {"timeout_seconds": timeout_seconds}
        for name, weights, options, outcomes in rows:
            for protocol, weight in weights.items():
                fields = {"name": f"{name}, {protocol}", "protocol": protocol, "weight": weight, **common, **options}
                kinds.append((RequestKind.model_validate(fields), outcomes))
        return Load(kinds, read_sentences(self.sentences), self.rate, self.seed)


def report(rounds: Callable[[Path], Coroutine[None, None, list[Findings]]]) -> None:
    """Runs rounds with a temporary folder, and prints one JSON document; exits with status 1 if a check fails."""
    with TemporaryDirectory(prefix="dragoman-") as folder:
        findings = asyncio.run(rounds(Path(folder)))
    print(to_json({"rounds": findings}).decode())
    if any(found.problems for found in findings):
        raise SystemExit(1)


class ChaosCommand(ReliabilityCommand):
    """Kill and stall server and clients under load, and count the outcome of every request.

    Each round injects one fault into a server of the bundle or its clients: none, the server is stalled (SIGSTOP) or
    killed and restarted, a client is stalled or killed. Every request must have exactly one outcome, which the fault
    explains. After the fault, all requests must be answered and the server must be idle. With --balance three replicas
    are restarted in turn, one is killed, one is stalled, and requests to the others must not fail. The exit status is 1
    if a check fails. DRAGOMAN_... settings apply to the servers. The last line of the output is one JSON document.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_LOAD_CHAOS_", frozen=True, extra="forbid")

    balance: Literal["nginx", "clients"] | None = Field(
        None, description="Serve three replicas, balanced by nginx or by gRPC clients. Default: one server."
    )
    nginx: Path = Field(Path("deploy/nginx"), description="--balance nginx: folder with its configuration.")
    only: tuple[str, ...] = Field((), description="Names of the faults to inject. Default: all.")
    round_seconds: float = Field(20.0, gt=0, description="Length of a round, without the duration of the fault.")
    repeat: int = Field(1, ge=1, description="Repetitions of every round.")
    timeout_seconds: float = Field(5.0, gt=0, le=3600, description="Timeout of a request.")

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = [fault.name for fault in self._faults]
        if not set(self.only) <= set(names):
            raise ValueError(f"only: expected some of {', '.join(map(repr, names))}")
        return self

    @property
    def _faults(self) -> tuple[Fault, ...]:
        return REPLICA_FAULTS if self.balance else FAULTS

    def cli_cmd(self) -> None:
        """Runs the rounds and prints the results; exits with status 1 if a check fails."""
        report(self._rounds)

    async def _rounds(self, folder: Path) -> list[Findings]:
        greedy, beam = dict.fromkeys(PROTOCOLS, 3.0), dict.fromkeys(PROTOCOLS, 1.0)
        load = self.load((("greedy", greedy, {}, ANSWERED), ("beam 4", beam, BEAM, ANSWERED)), self.timeout_seconds)
        faults = [fault for fault in self._faults if not self.only or fault.name in self.only]
        command = partial(server_command, self.bundle, lame_duck_seconds=LAME_DUCK_SECONDS)
        findings: list[Findings] = []
        with ExitStack() as stack:
            processes = stack.enter_context(
                start_replicas(lambda ports: command(*ports), folder, 3 if self.balance else 1)
            )
            replicas = balanced_by_clients(processes) if self.balance else alone(*processes)
            if self.balance == "nginx":
                replicas = stack.enter_context(behind_nginx(processes, folder, self.nginx.resolve()))
            await replicas.wait_ready()
            for fault in faults * self.repeat:
                seeded = replace(load, seed=self.seed + len(findings))
                findings.append(await run_round(replicas, fault, seeded, self.round_seconds))
                print(findings[-1], flush=True)
            await replicas.stop()
        return findings
