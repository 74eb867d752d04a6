"""`dragoman load` and `dragoman load report`: measure a running server under load, and compare results.

Standard output has tables, and in its last line one JSON document. Progress goes to standard error.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict
from rich.console import Console

from dragoman.loadtest.clients import Targets
from dragoman.loadtest.results import CapacityResult, LoadDocument, RunResult, to_line
from dragoman.loadtest.scenario import (
    LoadProtocol,
    Rate,
    Scenario,
    Seconds,
    SentencesPath,
    SourceLanguage,
    TargetLanguage,
    describe,
    read_scenario,
    read_sentences,
)
from dragoman.loadtest.session import LiveView, LoadSession
from dragoman.loadtest.tables import format_capacity, format_runs
from dragoman.model.errors import UsageError
from dragoman.model.output_file import write_output
from dragoman.model.provenance import Provenance, command_line
from dragoman.serve.clients.options import ConnectionOptions, check_address
from dragoman.tables import described, read_table

LIBRARIES = ("grpcio", "aiohttp", "numpy")
_READY_MADE = {path.stem: path for path in sorted((Path(__file__).parent / "scenarios").glob("*.yaml"))}


@described(__file__)
class LoadCommand(ConnectionOptions):
    """Measure a running server under load.

    The send times are drawn before the run and do not depend on the answers (open loop). Latency starts at the intended
    send time. If the generator itself is late, the run is void and the exit status is 1. A scenario describes the load;
    options replace its fields. --find-capacity searches the highest rate that meets the objective, then measures
    goodput from 0.1 to 2 times that rate. The last line of the output is one JSON document; --out also writes a page
    with plots.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_LOAD_", frozen=True, extra="forbid")

    HELP_GROUPS: ClassVar[dict[str, str]] = read_table(__file__, "command.yaml")["groups"]

    grpc_target: str = "127.0.0.1:8001"
    rest_url: str = "http://127.0.0.1:8000"
    scenario: str = Field(
        "steady",
        description=f"YAML file, or one of {', '.join(_READY_MADE)}.",
        json_schema_extra={"placeholder": "FILE|NAME"},
    )
    protocol: tuple[LoadProtocol, ...] = Field((), json_schema_extra={"placeholder": "PROTOCOL,..."})
    rate: Rate | None = None
    duration_seconds: Seconds | None = None
    sentences: SentencesPath = None
    source_language: SourceLanguage = ""
    target_language: TargetLanguage = ""
    model: str = ""
    closed_loop: int | None = Field(None, ge=1)
    find_capacity: bool = False
    latency_seconds: Seconds | None = None
    processes: int = Field(1, ge=1)
    generator_cpus: tuple[Annotated[int, Field(ge=0)], ...] = ()
    out: Path | None = None

    def cli_cmd(self) -> None:
        """Runs the load and prints the report; exits with status 1 if a run is void."""
        document = asyncio.run(self._run())
        if self.out is not None:
            from dragoman.loadtest.report import write_report  # noqa: PLC0415 - plotly takes a second to import

            write_report(self.out, document)
        print(to_line(document))
        if document.void:
            raise SystemExit(1)

    @property
    def targets(self) -> Targets:
        """The addresses and the security settings."""
        scheme = _scheme_of(self.rest_url)
        security = self.connection(self.rest_url)
        check_address("grpc-target", self.grpc_target)
        # A https:// REST URL turns on TLS for gRPC too, so that no API key is sent in the clear.
        security = replace(security, tls=security.tls or scheme == "https")
        return Targets(self.grpc_target, self.rest_url, security=security)

    def described_scenario(self) -> Scenario:
        """Reads the scenario and replaces its fields by the given options; only the runs apply `protocol`."""
        if self.find_capacity and self.closed_loop is not None:
            raise UsageError("find-capacity: expected no --closed-loop with it")
        if self.find_capacity and len(self.protocol) > 1:
            raise UsageError(f"protocol: expected one with --find-capacity, got {len(self.protocol)}")
        path = Path(self.scenario)
        if not path.suffix and self.scenario not in _READY_MADE:
            known = ", ".join(_READY_MADE)
            raise UsageError(f"scenario: expected a YAML file or one of {known}, got {self.scenario!r}")

        def given(*names: str) -> dict[str, object]:
            return {name: value for name in names if (value := getattr(self, name)) not in (None, "")}

        scenario = read_scenario(_READY_MADE.get(self.scenario, path))
        objective = scenario.objective.model_copy(update=given("latency_seconds"))
        of_kinds = given("source_language", "target_language", "model")
        return scenario.with_fields(
            of_kinds, given("rate", "duration_seconds"), objective=objective, **given("sentences")
        )

    async def _run(self) -> LoadDocument:
        runs: list[RunResult] = []
        capacity: CapacityResult | None = None
        scenario = self.described_scenario()
        scenarios = {name: _over(scenario, name) for name in self.protocol} or {Path(self.scenario).stem: scenario}
        sentences = read_sentences(scenario.sentences)
        targets = replace(self.targets, connections=scenario.connections)
        options: dict[str, Any] = {"processes": self.processes, "cpus": self.generator_cpus, "users": self.closed_loop}
        try:
            with LiveView.open(Console(stderr=True)) as view:
                for name, run in scenarios.items():
                    async with LoadSession.open(run, sentences, targets, view, **options) as session:
                        if self.find_capacity:
                            capacity = await session.find_capacity(name)
                        else:
                            runs += await session.run(name)
        finally:
            # If a later run fails, the results of the earlier ones are printed all the same.
            if capacity is not None:
                print(format_capacity(capacity))
            elif runs:
                print(format_runs({run.name: run for run in runs}))
        provenance = Provenance.now(command_line("load", self), LIBRARIES, f"generator processes: {self.processes}")
        void = any(run.void is not None for run in (*runs, *([capacity, *capacity.curve] if capacity else ())))
        settings = self.model_dump(mode="json")
        return LoadDocument(provenance, settings, scenario, describe(sentences), runs, capacity, void)


def _over(scenario: Scenario, protocol: LoadProtocol) -> Scenario:
    """Returns a scenario with all requests over one protocol; its phases are named after it."""
    phases = [
        phase.model_copy(update={"name": protocol if len(scenario.phases) == 1 else f"{protocol}, {phase.name}"})
        for phase in scenario.phases
    ]
    return scenario.model_copy(update={"phases": tuple(phases)}).with_fields({"protocol": protocol}, {})


def _scheme_of(url: str) -> str:
    """Returns "http" or "https". The error omits the URL, which may hold a password."""
    try:
        parts = urlsplit(url)
        whole = parts.hostname and parts.port != 0 and parts.username is None
        usable = whole and url.removesuffix("/") == f"{parts.scheme}://{parts.netloc}"
    except ValueError:  # unbalanced brackets or a port that is not a number
        usable = False
    if not usable or parts.scheme not in ("http", "https"):
        raise UsageError("rest-url: expected only http://HOST:PORT or https://HOST:PORT")
    return parts.scheme


class LoadReportCommand(BaseSettings):
    """Compare loads on one page: tables and plots of the load.json files of `dragoman load --out FOLDER`.

    The page is a single file that loads no other files. Each report is named after its folder.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_LOAD_REPORT_", frozen=True, extra="forbid")

    reports: CliPositionalArg[list[Path]] = Field(min_length=1, description="load.json files to compare")
    out: Path = Field(Path("load.html"), description="HTML page to write.")

    def cli_cmd(self) -> None:
        """Writes the page."""
        from dragoman.loadtest.report import read_report, render  # noqa: PLC0415 - plotly takes a second to import

        # Short names if they are unique, else whole paths.
        names = {path.parent.resolve().name if path.stem == "load" else path.stem: path for path in self.reports}
        if len(names) < len(self.reports):
            names = {str(path): path for path in self.reports}
        page = render({name: read_report(path) for name, path in names.items()})
        write_output(self.out, page)
        print(self.out)
