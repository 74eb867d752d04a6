"""`dragoman load`: measures a running server under load, over every interface, and tells what users would have felt.

Composes the other modules: draws the plan, starts the generators, watches the run and reports it: lines for people, as
the last line of the output one JSON document, and on demand a page with plots.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from loadtest.document import CapacityResult, LoadDocument, to_line
from loadtest.generators import GeneratorLostError
from loadtest.live_view import LiveView
from loadtest.options import LoadOptions
from loadtest.report_files import ReportFileError
from loadtest.results import RunResult
from loadtest.scenario import ScenarioError
from loadtest.sentences import describe, read_sentences
from loadtest.session import LoadSession, SessionOptions
from loadtest.terminal_report import format_capacity, format_run
from model.provenance import Provenance, command_line
from serve.files import FileError

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
        with told("dragoman load"):
            document = asyncio.run(self._run())
            if self.out is not None:
                from loadtest.report_report_files import write_report  # noqa: PLC0415 - what draws takes a second

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
def told(command: str) -> Iterator[None]:
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
