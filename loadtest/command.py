"""`dragoman load`: measures a running server under load over every interface.

Prints a report whose last line is one JSON document. `--out` also writes an HTML page with plots.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationError
from pydantic_settings import SettingsConfigDict
from rich.console import Console

from loadtest.clients import Targets
from loadtest.generator import GeneratorLostError
from loadtest.objective import Objective
from loadtest.report_files import ReportFileError
from loadtest.results import CapacityResult, LoadDocument, RunResult, to_line
from loadtest.scenario import (
    MAX_RATE,
    LoadProtocol,
    Scenario,
    ScenarioError,
    SearchOptions,
    SentencesPath,
    SourceLanguage,
    TargetLanguage,
    describe,
    read_scenario,
    read_sentences,
)
from loadtest.session import LiveView, LoadSession, SessionOptions
from loadtest.terminal_report import format_capacity, format_run
from model.provenance import Provenance, command_line
from serve.clients.options import ConnectionOptions
from serve.files import FileError

# Options that a scenario file replaces.
_SCENARIO_OPTIONS = frozenset(
    {
        *("protocol", "arrivals", "rate", "last_rate", "peak_rate", "every_seconds", "burst_seconds", "trace", "speed"),
        *("duration_seconds", "warm_up_seconds", "sentences", "source_language", "target_language"),
        *("texts_per_request", "options", "timeout_seconds", "cancelled_share"),
    }
)
# Options that the capacity search chooses itself.
_SINGLE_LOAD_OPTIONS = frozenset(
    {
        *("scenario", "closed_loop", "until_stable", "arrivals", "trace", "speed"),
        *("last_rate", "peak_rate", "every_seconds", "burst_seconds", "duration_seconds", "warm_up_seconds"),
    }
)
_PHASE_OPTIONS = {
    "poisson": ("rate", "duration_seconds"),
    "constant": ("rate", "duration_seconds"),
    "burst": ("rate", "peak_rate", "every_seconds", "burst_seconds", "duration_seconds"),
    "ramp": ("rate", "last_rate", "duration_seconds"),
    "replay": ("trace", "speed"),
}


class ServerOptions(ConnectionOptions):
    """Address of the server, and the processes that generate load."""

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_LOAD_",
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
        nested_model_default_partial_update=True,
    )

    HELP_GROUPS: ClassVar[dict[str, str]] = {
        "grpc_target": "server connection",
        "connections": "load generator",
    }

    grpc_target: str = Field("127.0.0.1:8001", description="Address of the gRPC interface.")
    rest_url: str = Field(
        "http://127.0.0.1:8000",
        description="Base URL of REST and /metrics; https:// enables TLS for gRPC too.",
    )
    connections: int = Field(2, ge=1, description="gRPC connections per process; REST opens one per request in flight.")
    processes: int = Field(1, ge=1, description="Processes that generate load, for rates beyond one core.")
    generator_cpus: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (), description="CPUs of the load generator, best not the server's. Default: any."
    )
    max_lag_seconds: float = Field(
        0.01, gt=0, description="A run is void if the p99 of the generator's lag exceeds this."
    )
    seed: int = Field(1, ge=0, description="Seed of the send times and requests.")

    @property
    def targets(self) -> Targets:
        """The addresses and the security settings.

        Raises:
            ScenarioError: if the base URL is malformed.
            FileError: if a TLS file or the key cannot be used.
        """
        scheme = _scheme_of(self.rest_url)
        security = self.connection(self.rest_url)
        # A https:// REST URL turns on TLS for gRPC too, so that no API key is sent in the clear.
        security = replace(security, tls=security.tls or scheme == "https")
        return Targets(self.grpc_target, self.rest_url, self.connections, security)


class LoadOptions(ServerOptions):
    """All options of `dragoman load`."""

    HELP_GROUPS: ClassVar[dict[str, str]] = {
        "scenario": "load",
        "sentences": "requests",
        "closed_loop": "load",
        "until_stable": "measurement",
        "out": "output",
    }

    scenario: Path | None = Field(None, description="YAML scenario; replaces the options that describe the load.")
    protocol: tuple[LoadProtocol, ...] = Field(
        ("grpc",), min_length=1, description="Interfaces to measure, one run each."
    )
    arrivals: Literal["poisson", "constant", "burst", "ramp", "replay"] = Field(
        "poisson", description="Distribution of the send times."
    )
    rate: float = Field(
        20.0, gt=0, le=MAX_RATE, description="Mean requests per second; ramp: at the start, burst: between bursts."
    )
    last_rate: float = Field(100.0, gt=0, le=MAX_RATE, description="ramp: requests per second at the end.")
    peak_rate: float = Field(100.0, gt=0, le=MAX_RATE, description="burst: requests per second in a burst.")
    every_seconds: float = Field(10.0, gt=0, description="burst: from the start of one burst to the next.")
    burst_seconds: float = Field(1.0, gt=0, description="burst: length of a burst.")
    trace: Path | None = Field(None, description="replay: file with one recorded request per line.")
    speed: float = Field(1.0, gt=0, description="replay: factor by which the trace is sped up.")
    duration_seconds: float = Field(30.0, gt=0, description="Length of the measured part of a run.")
    warm_up_seconds: float = Field(3.0, ge=0, description="Load before the measured part, not reported.")
    sentences: SentencesPath = None
    source_language: SourceLanguage = ""
    target_language: TargetLanguage = ""
    texts_per_request: int = Field(1, ge=1, description="Texts per request.")
    options: SearchOptions = Field(SearchOptions(), description="Search options.")
    timeout_seconds: float = Field(10.0, gt=0, le=3600, description="Timeout of a request.")
    cancelled_share: float = Field(
        0.0, ge=0, le=1, description="Share of requests that their clients cancel within half a second."
    )
    closed_loop: int | None = Field(
        None,
        ge=1,
        description="Run a closed loop of N users; measures throughput, not latency under load.",
    )
    until_stable: bool = Field(
        False,
        description="Repeat the measured part, at most 10 times, until the last 3 agree within 10 %.",
    )
    find_capacity: bool = Field(
        False, description="Search the highest rate that meets the objective, then measure around it."
    )
    objective: Objective = Field(Objective(), description="Service level objective.")
    trial_seconds: float = Field(10.0, gt=0, description="--find-capacity: measured length of a trial.")
    tolerance: float = Field(0.05, gt=0, lt=1, description="--find-capacity: relative tolerance of the rate.")
    out: Path | None = Field(None, description="Folder for load.json and load.html.")

    def scenarios(self) -> dict[str, Scenario]:
        """Returns the scenario of each run, by protocol name or by the name of the scenario file.

        Raises:
            ScenarioError: if the options conflict or the scenario file cannot be used.
        """
        if self.find_capacity:
            self._refuse(_SINGLE_LOAD_OPTIONS, " with --find-capacity, which chooses rates of Poisson arrivals")
            if len(self.protocol) > 1:
                raise ScenarioError(f"protocol: expected one with --find-capacity, got {len(self.protocol)}")
        if self.scenario is None:
            return {protocol: self._of_flags(protocol) for protocol in self.protocol}
        self._refuse(_SCENARIO_OPTIONS, " with --scenario")
        return {self.scenario.stem: read_scenario(self.scenario)}

    def _refuse(self, names: frozenset[str], why: str) -> None:
        given = sorted(names & self.model_fields_set)
        if given:
            raise ScenarioError(f"{given[0].replace('_', '-')}: expected no such option{why}")

    def _of_flags(self, protocol: LoadProtocol) -> Scenario:
        if self.arrivals == "replay" and self.trace is None:
            raise ScenarioError("trace: expected a file with --arrivals replay, got none")
        phase: dict[str, Any] = {name: getattr(self, name) for name in _PHASE_OPTIONS[self.arrivals]}
        kind = {
            "protocol": protocol,
            "texts": {self.texts_per_request: 1.0},
            "source_language": self.source_language,
            "target_language": self.target_language,
            "options": self.options,
            "timeout_seconds": self.timeout_seconds,
            "cancelled_share": self.cancelled_share,
        }
        content = {
            "sentences": self.sentences,
            "warm_up_seconds": self.warm_up_seconds,
            "requests": [kind],
            "phases": [{"name": protocol, "arrivals": self.arrivals, **phase}],
        }
        try:
            return Scenario.model_validate(content)
        except ValidationError as error:
            messages = (f"{str(each['loc'][-1]).replace('_', '-')}: {each['msg']}" for each in error.errors())
            raise ScenarioError("; ".join(messages)) from error


def _scheme_of(url: str) -> str:
    """Returns "http" or "https". The error omits the URL, which may hold a password."""
    try:
        parts = urlsplit(url)
        whole = parts.hostname and parts.port != 0 and parts.username is None
        usable = whole and url.removesuffix("/") == f"{parts.scheme}://{parts.netloc}"
    except ValueError:  # unbalanced brackets or a port that is not a number
        usable = False
    if not usable or parts.scheme not in ("http", "https"):
        raise ScenarioError("rest-url: expected only http://HOST:PORT or https://HOST:PORT")
    return parts.scheme


INTERRUPTED = 130
LIBRARIES = ("grpcio", "aiohttp", "hdrhistogram", "numpy")


class LoadCommand(LoadOptions):
    """Measure a running server under load.

    The send times are drawn before the run and do not depend on the answers (open loop). Latency starts at the intended
    send time. If the generator itself is late, the run is void and the exit status is 1. --find-capacity searches the
    highest rate that meets the objective, then measures goodput from 0.1 to 2 times that rate. The last line of the
    output is one JSON document; --out also writes a page with plots.
    """

    def cli_cmd(self) -> None:
        """Runs the load and prints the report; exits with status 1 if a run is void."""
        with exit_with_message("dragoman load"):
            document = asyncio.run(self._run())
            if self.out is not None:
                from loadtest.report import write_report  # noqa: PLC0415 - matplotlib takes a second to import

                write_report(self.out, document)
        print(to_line(document))
        if document.void:
            raise SystemExit(1)

    async def _run(self) -> LoadDocument:
        runs: list[RunResult] = []
        capacity: CapacityResult | None = None
        described: dict[str, float] = {}
        with LiveView.open(Console(stderr=True)) as view:
            for name, scenario in self.scenarios().items():
                sentences = read_sentences(scenario.sentences)
                described = describe(sentences)
                async with LoadSession.open(self._session_options(), scenario, sentences, view) as session:
                    if self.find_capacity:
                        capacity = await session.find_capacity(name, self.rate, self.trial_seconds, self.tolerance)
                        print(format_capacity(capacity))
                    else:
                        found = await session.run(name)
                        print("\n".join(format_run(result) for result in found))
                        runs += found
        return self._document(runs, capacity, described)

    def _session_options(self) -> SessionOptions:
        return SessionOptions(
            self.targets,
            self.processes,
            self.generator_cpus,
            self.objective,
            self.max_lag_seconds,
            self.seed,
            self.closed_loop,
            self.until_stable,
        )

    def _document(
        self, runs: list[RunResult], capacity: CapacityResult | None, sentences: dict[str, float]
    ) -> LoadDocument:
        provenance = Provenance.now(command_line("load", self), LIBRARIES, f"generator processes: {self.processes}")
        voids = [run.void for run in runs]
        if capacity is not None:
            voids += [capacity.void, *(point.void for point in capacity.curve)]
        return LoadDocument(
            provenance.command,
            provenance.machine,
            provenance.versions,
            provenance.date,
            self.model_dump(mode="json"),
            sentences,
            runs,
            capacity,
            any(void is not None for void in voids),
        )


@contextmanager
def exit_with_message(command: str) -> Iterator[None]:
    """Turns errors that the user can fix into a one-line message.

    Raises:
        SystemExit: instead of the error.
    """
    try:
        yield
    except (ScenarioError, FileError, ReportFileError, GeneratorLostError) as error:
        raise SystemExit(f"{command}: {error}") from error
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
