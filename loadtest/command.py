"""`dragoman load`: measures a running server under load, over every interface, and tells what users would have felt.

Composes the other modules: draws the plan, starts the generators, watches the run and reports it: lines for people, as
the last line of the output one JSON document, and on demand a page with plots.

The options of `dragoman load`: where the server is, what load it gets, what is looked for and what is written.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal
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

# What a scenario says in their place.
_OF_A_SCENARIO = frozenset(
    {
        *("protocol", "arrivals", "rate", "last_rate", "peak_rate", "every_seconds", "burst_seconds", "trace", "speed"),
        *("duration_seconds", "warm_up_seconds", "sentences", "source_language", "target_language"),
        *("texts_per_request", "options", "timeout_seconds", "cancelled_share"),
    }
)
# What a search for the capacity chooses itself.
_OF_A_LOAD = frozenset(
    {
        *("scenario", "closed_loop", "until_stable", "arrivals", "trace", "speed"),
        *("last_rate", "peak_rate", "every_seconds", "burst_seconds", "duration_seconds", "warm_up_seconds"),
    }
)
_OF_PHASES = {
    "poisson": ("rate", "duration_seconds"),
    "constant": ("rate", "duration_seconds"),
    "burst": ("rate", "peak_rate", "every_seconds", "burst_seconds", "duration_seconds"),
    "ramp": ("rate", "last_rate", "duration_seconds"),
    "replay": ("trace", "speed"),
}


class ServerOptions(ConnectionOptions):
    """Where the server is, and what sends the load."""

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_LOAD_",
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
        nested_model_default_partial_update=True,
    )

    grpc_target: str = Field("127.0.0.1:8001", description="Host and port of the gRPC interface.")
    rest_url: str = Field(
        "http://127.0.0.1:8000",
        description="Base URL of the REST interface, which also has the server's metrics. https:// says that both "
        "interfaces speak TLS.",
    )
    connections: int = Field(
        2, ge=1, description="gRPC connections of a process; REST opens as many as there are requests in flight."
    )
    processes: int = Field(1, ge=1, description="Processes that send the load, if one core is not enough.")
    generator_cpus: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (), description="CPUs that these may run on, best others than the server's. Default: any."
    )
    max_lag_seconds: float = Field(
        0.01, gt=0, description="A run is void if the 99th percentile of the generator's lag exceeds it."
    )
    seed: int = Field(1, ge=0, description="Seed of the send times and of the choice of requests.")

    @property
    def targets(self) -> Targets:
        """Where the server is, and what it asks of clients.

        Raises:
            ScenarioError: if the base URL is none.
            FileError: if an option of TLS or the key cannot be used.
        """
        scheme = _scheme_of(self.rest_url)
        security = self.connection(self.rest_url)
        # Never a key in the clear on one interface because the other one said TLS.
        security = replace(security, tls=security.tls or scheme == "https")
        return Targets(self.grpc_target, self.rest_url, self.connections, security)


class LoadOptions(ServerOptions):
    """All options; what is done with them, the command tells."""

    scenario: Path | None = Field(
        None, description="YAML file that says what the load is, in place of the options from --protocol on."
    )
    protocol: tuple[LoadProtocol, ...] = Field(
        ("grpc",), min_length=1, description="Interface to measure; of several, one run after the other."
    )
    arrivals: Literal["poisson", "constant", "burst", "ramp", "replay"] = Field(
        "poisson", description="How send times are drawn."
    )
    rate: float = Field(20.0, gt=0, le=MAX_RATE, description="Requests per second, on average; at first, or usually.")
    last_rate: float = Field(100.0, gt=0, le=MAX_RATE, description="ramp: requests per second at the end.")
    peak_rate: float = Field(100.0, gt=0, le=MAX_RATE, description="burst: requests per second in a burst.")
    every_seconds: float = Field(10.0, gt=0, description="burst: from one beginning to the next.")
    burst_seconds: float = Field(1.0, gt=0, description="burst: length of a burst.")
    trace: Path | None = Field(None, description="replay: file with a recorded request on each line.")
    speed: float = Field(1.0, gt=0, description="replay: how many times as fast as it was recorded.")
    duration_seconds: float = Field(30.0, gt=0, description="Length of the measured part of a run.")
    warm_up_seconds: float = Field(3.0, ge=0, description="Load before the measured part; not in the report.")
    sentences: SentencesPath = None
    source_language: SourceLanguage = ""
    target_language: TargetLanguage = ""
    texts_per_request: int = Field(1, ge=1, description="Texts in one request.")
    options: SearchOptions = Field(SearchOptions(), description="How is searched.")
    timeout_seconds: float = Field(10.0, gt=0, le=3600, description="How long a request waits for its answer.")
    cancelled_share: float = Field(
        0.0, ge=0, le=1, description="Share of the requests whose client goes away within half a second."
    )
    closed_loop: int | None = Field(
        None,
        ge=1,
        description="Not at drawn times, but by so many users, each of whom waits for an answer before the next "
        "request. Tells throughput, and nothing of latency under load.",
    )
    until_stable: bool = Field(
        False,
        description="Repeat the measured part until the last three agree within 10 % in throughput and the objective's "
        "percentile, at most ten times; these three are reported.",
    )
    find_capacity: bool = Field(
        False, description="Search the highest rate that meets the objective, then measure goodput around it."
    )
    objective: Objective = Field(Objective(), description="What an answer is good for.")
    trial_seconds: float = Field(10.0, gt=0, description="--find-capacity: length of the measured part of a trial.")
    tolerance: float = Field(0.05, gt=0, lt=1, description="--find-capacity: how exactly the rate is searched.")
    out: Path | None = Field(None, description="Folder that gets load.json and load.html.")

    def scenarios(self) -> dict[str, Scenario]:
        """Returns what each run is to do, by the name of its protocol, or that of the scenario file.

        Raises:
            ScenarioError: if the scenario cannot be had.
        """
        if self.find_capacity:
            self._refuse(_OF_A_LOAD, ": the search chooses rates, and tries them with Poisson arrivals")
            if len(self.protocol) > 1:
                raise ScenarioError(f"protocol: {len(self.protocol)} of them, expected one whose capacity is searched")
        if self.scenario is None:
            return {protocol: self._of_flags(protocol) for protocol in self.protocol}
        self._refuse(_OF_A_SCENARIO, " beside a scenario")
        return {self.scenario.stem: read_scenario(self.scenario)}

    def _refuse(self, names: frozenset[str], why: str) -> None:
        given = sorted(names & self.model_fields_set)
        if given:
            raise ScenarioError(f"{given[0].replace('_', '-')}: given, expected no such option{why}")

    def _of_flags(self, protocol: LoadProtocol) -> Scenario:
        if self.arrivals == "replay" and self.trace is None:
            raise ScenarioError("trace: missing, expected the file that is to be replayed")
        phase: dict[str, Any] = {name: getattr(self, name) for name in _OF_PHASES[self.arrivals]}
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
            exit_with_message = (f"{str(each['loc'][-1]).replace('_', '-')}: {each['msg']}" for each in error.errors())
            raise ScenarioError("; ".join(exit_with_message)) from error


def _scheme_of(url: str) -> str:
    """Returns http or https. A password would be in every report, so that not even the message shows the URL."""
    try:
        parts = urlsplit(url)
        whole = parts.hostname and parts.port != 0 and parts.username is None
        usable = whole and url.removesuffix("/") == f"{parts.scheme}://{parts.netloc}"
    except ValueError:  # brackets that do not match, or a port that is no number
        usable = False
    if not usable or parts.scheme not in ("http", "https"):
        raise ScenarioError("rest-url: expected http://HOST:PORT or https://HOST:PORT, and nothing else in it")
    return parts.scheme


INTERRUPTED = 130
LIBRARIES = ("grpcio", "aiohttp", "hdrhistogram", "numpy")


class LoadCommand(LoadOptions):
    """Measure a running server under load.

    Requests are sent at times drawn beforehand, whether or not earlier ones were answered, and latency runs from the
    intended send time. If the generator itself is late, the run is void and the exit status is 1. With --find-capacity,
    the highest rate that meets the objective is searched, and goodput is measured from a tenth of it to twice as much.
    The last line of the output is one JSON document; --out also writes a page with plots.
    """

    def cli_cmd(self) -> None:
        """Runs the load, prints the report and exits with status 1 if a run is void."""
        with exit_with_message("dragoman load"):
            document = asyncio.run(self._run())
            if self.out is not None:
                from loadtest.report import write_report  # noqa: PLC0415 - what draws takes a second

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
    """Ends the program with one line about what its user can change.

    Raises:
        SystemExit: instead of what keeps a load from being measured.
    """
    try:
        yield
    except (ScenarioError, FileError, ReportFileError, GeneratorLostError) as error:
        raise SystemExit(f"{command}: {error}") from error
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
