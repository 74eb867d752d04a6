"""Whether the slots are taken while something waits, and how long decoders stand still between two runs.

A part of `dragoman bench scheduling`: all sentences come at once, greedily and with a beam of 4.
"""

from dataclasses import dataclass

from benchmarks.harness.rounds import Progress, Spread
from benchmarks.offline_results import SEARCHES
from benchmarks.profiling import Quantiles, gaps_us
from benchmarks.scheduling_options import SchedulingOptions
from benchmarks.scheduling_stalls import ScheduledModel
from benchmarks.systems.engine import LiveEngines, occupancy
from loadtest.report_files import markdown_table
from serve.settings import ServeSettings
from serve.system import available_cpus


@dataclass(frozen=True, slots=True)
class Conserved:
    """All sentences with one search.

    Attributes:
        search: its name.
        occupancy: share of the slots that are taken in the steps while something waits, round by round.
        gaps: between two decoder runs of an engine, without other runs of ONNX Runtime, round by round.
    """

    search: str
    occupancy: list[float]
    gaps: list[Quantiles]


def steps(options: SchedulingOptions) -> int:
    """Returns how many steps `measure` tells a progress bar."""
    return options.rounds * len(SEARCHES)


def measure(model: ScheduledModel, options: SchedulingOptions, progress: Progress) -> list[Conserved]:
    """Translates all sentences with each search, in turns.

    Raises:
        ServiceError: if an engine fails.
    """
    sessions = model.sessions(threads=1)
    results = [Conserved(search, [], []) for search in SEARCHES]
    budget = ServeSettings().prefill_token_budget
    for _ in range(options.rounds):
        for result in results:
            with LiveEngines.run(
                sessions, engines=available_cpus(), slots=options.slots, prefill_token_budget=budget
            ) as engines:
                engines.translate(model.specs(SEARCHES[result.search]))
            taken = [step for runtime in engines.runtimes for step in runtime.steps]
            result.occupancy.append(occupancy(taken, options.slots))
            gaps = [gap for runtime in engines.runtimes for gap in gaps_us(runtime.stopwatch.spans)]
            result.gaps.append(Quantiles.of(gaps))
            progress.update()
    return results


def table(results: dict[str, list[Conserved]]) -> str:
    """Returns the table of all models."""
    heading = ["model", "search", "slots taken while something waits", "between decoder runs, us: median", "p99"]
    rows = [
        [
            name,
            result.search,
            Spread.of(result.occupancy).format("{:.1%}"),
            Spread.of([gaps.median for gaps in result.gaps]).format("{:,.0f}"),
            Spread.of([gaps.p99 for gaps in result.gaps]).format("{:,.0f}"),
        ]
        for name, found in results.items()
        for result in found
    ]
    return markdown_table(heading, rows, words=2)
