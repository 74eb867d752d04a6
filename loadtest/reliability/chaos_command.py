"""`dragoman load chaos`: serves a bundle and injects faults into server and clients under load."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import to_json
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from loadtest.command import exit_with_message
from loadtest.reliability.chaos import FAULTS, PROTOCOLS, ChaosRound, Fault, S, Served, run_round
from loadtest.reliability.chaos_load import (
    CapacitySearch,
    ChaosLoad,
    format_load,
    found_load,
    given_load,
    replica_faults,
)
from loadtest.reliability.replicas import Replicas, balanced_by_clients, behind_nginx, start_replicas
from loadtest.scenario import (
    MAX_RATE,
    Objective,
    RequestKind,
    ScenarioError,
    SearchOptions,
    SentencesPath,
    SourceLanguage,
    TargetLanguage,
    read_sentences,
)
from loadtest.served_process import ServedProcess, ServedProcessError
from serve.server_process import choose_ports, server_command

# The server's default: several times what nginx or the clients need to notice that a replica is leaving.
LAME_DUCK_SECONDS = 5.0


class ChaosCommand(BaseSettings):
    """Kill and stall server and clients under load, and count the outcome of every request.

    The bundle is served in a separate process. Each round injects one fault: none, the server is stalled (SIGSTOP) or
    killed (SIGKILL) and restarted, a client is stalled or killed. Every request must have exactly one outcome, and one
    that the fault explains. After the fault, all requests must be answered and the server's slots and queue must be
    empty. With --balance there are three replicas: all are restarted in turn, one is killed, one is stalled, and
    requests to the other replicas must not fail. The exit status is 1 if a check fails. --capacity-share first searches
    the highest rate that meets the objective without faults. The DRAGOMAN_... settings apply to the servers. The last
    line of the output is one JSON document.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_LOAD_CHAOS_", frozen=True, extra="forbid")

    bundle: CliPositionalArg[Path] = Field(description="folder written by `dragoman export`")
    balance: Literal["nginx", "clients"] | None = Field(
        None,
        description="Serve three replicas, balanced by nginx or by gRPC clients. Default: one server.",
    )
    nginx: Path = Field(
        Path("deploy/nginx"), description="--balance nginx: folder with nginx.conf and watch_replicas.sh."
    )
    only: tuple[str, ...] = Field((), description="Names of the faults to inject. Default: all.")
    rate: float = Field(
        20.0,
        gt=0,
        le=MAX_RATE,
        description="Requests per second over all interfaces; --capacity-share: of the first trial.",
    )
    capacity_share: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Rate as a share of the measured capacity, as in 0.7. Default: --rate applies.",
    )
    objective: Objective = Field(Objective(), description="--capacity-share: service level objective.")
    trial_seconds: float = Field(5.0, gt=0, description="--capacity-share: measured length of a trial.")
    round_seconds: float = Field(20.0, gt=0, description="Length of a round, without the duration of the fault.")
    repeat: int = Field(1, ge=1, description="Repetitions of every round.")
    sentences: SentencesPath = None
    source_language: SourceLanguage = ""
    target_language: TargetLanguage = ""
    timeout_seconds: float = Field(5.0, gt=0, le=3600, description="Timeout of a request.")
    seed: int = Field(1, ge=0, description="Seed of the send times and requests.")

    @field_validator("only")
    @classmethod
    def _check_names(cls, only: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        faults: Sequence[Fault[Any]] = FAULTS if info.data.get("balance") is None else replica_faults(PROTOCOLS)
        names = [each.name for each in faults]
        if not set(only) <= set(names):
            raise ValueError(f"expected some of {', '.join(map(repr, names))}")
        return only

    def cli_cmd(self) -> None:
        """Runs the rounds and prints the results; exits with status 1 if a check fails."""
        with exit_with_message("dragoman load chaos"), TemporaryDirectory(prefix="dragoman-") as folder:
            try:
                if self.balance is None:
                    ports = choose_ports(0, 0)
                    command = server_command(self.bundle, *ports)
                    with ServedProcess.run(command, ports, Path(folder) / "server.log") as served:
                        load, rounds = asyncio.run(self.run(served, FAULTS))
                else:
                    with self._replicas(Path(folder)) as replicas:
                        load, rounds = asyncio.run(self.run(replicas, replica_faults(replicas.protocols)))
            except ServedProcessError as error:
                raise ScenarioError(str(error)) from error
        print(to_json({"load": asdict(load), "rounds": [asdict(each) for each in rounds]}).decode())
        if any(each.problems for each in rounds):
            raise SystemExit(1)

    async def run(self, served: S, faults: Sequence[Fault[S]]) -> tuple[ChaosLoad, list[ChaosRound]]:
        """Runs the rounds; prints the load and the result of each round.

        Raises:
            GeneratorLostError: if a generator dies during the capacity search.
            ScenarioError: if sentences cannot be read, or no rate meets the objective.
            ServedProcessError: if a server does not recover, or does not exit with status 0.
        """
        sentences = read_sentences(self.sentences)
        await served.wait_ready()
        chosen = [fault for fault in faults if not self.only or fault.name in self.only]
        load = await self._load(served, chosen, sentences)
        print(format_load(load), flush=True)
        rounds = []
        for number, fault in enumerate(chosen * self.repeat):
            found = await run_round(
                served,
                fault,
                self._kinds(),
                sentences,
                rate=load.rate,
                seconds=self.round_seconds,
                seed=self.seed + number,
            )
            print(format_round(found), flush=True)
            rounds.append(found)
        await served.stop()
        return load, rounds

    async def _load(self, served: Served, faults: Sequence[Fault[Any]], sentences: Sequence[str]) -> ChaosLoad:
        if self.capacity_share is None:
            return await given_load(served, self.rate)
        protocols = {protocol for fault in faults for protocol in fault.protocols}
        return await found_load(
            served,
            CapacitySearch(self.capacity_share, self.objective, self.trial_seconds),
            [kind for kind in self._kinds() if kind.protocol in protocols],
            sentences,
            first_rate=self.rate,
            seed=self.seed,
        )

    @contextmanager
    def _replicas(self, folder: Path) -> Iterator[Replicas]:
        def command(ports: tuple[int, int]) -> list[str]:
            return server_command(self.bundle, *ports, lame_duck_seconds=LAME_DUCK_SECONDS)

        if self.balance == "nginx" and not (self.nginx / "nginx.conf").is_file():
            raise ScenarioError(f"nginx: {self.nginx}: expected a folder with nginx.conf, such as deploy/nginx")
        with start_replicas(command, folder) as each:
            if self.balance == "clients":
                yield balanced_by_clients(each)
                return
            with behind_nginx(each, folder, self.nginx.resolve()) as replicas:
                yield replicas

    def _kinds(self) -> list[RequestKind]:
        return [
            RequestKind(
                name=f"{protocol}, {search}",
                weight=weight,
                protocol=protocol,
                source_language=self.source_language,
                target_language=self.target_language,
                options=options,
                timeout_seconds=self.timeout_seconds,
            )
            for protocol in PROTOCOLS
            for search, weight, options in (
                ("greedy", 3.0, SearchOptions()),
                ("beam 4", 1.0, SearchOptions(beam_size=4)),
            )
        ]


def format_round(found: ChaosRound) -> str:
    """Formats the result of a round."""
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(found.outcomes.items()))
    over = "" if found.over_seconds is None else f"; recovered after {found.over_seconds:.1f} s"
    line = (
        f"{found.fault}: {found.sent} sent: {outcomes}, {found.lost} lost with the killed client{over}; "
        f"{found.asked_afterwards} sent after the recovery"
    )
    return "\n".join([line, *(f"  WRONG: {problem}" for problem in found.problems)])
