"""The options of `dragoman bench scheduling`, its models, and three of its parts.

Modes: both modes of the server, all sentences at once, and one at a time. Head of line: the latency of a short request
while others of maximum length run; a server that batches whole requests answers the short one only after the long ones.
Work conservation: occupancy of the slots while sequences wait, and time between decoder runs; all sentences arrive at
once, in greedy search and with a beam of 4.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from benchmarks.harness.process import Launch
from benchmarks.harness.rounds import Player, Progress, Spread, format_spread, play, steps_of
from benchmarks.offline_results import SEARCHES
from benchmarks.profiling import Quantiles, gaps_us
from benchmarks.systems.compared_model import BASE, BASE_VOCABULARY_SIZE, MOST_TOKENS
from benchmarks.systems.engine import CountedEngines, search_options
from benchmarks.systems.translating import SourceSentence
from loadtest.report_files import markdown_table
from model.config import TransformerConfig
from serve.bundle.bundle import Bundle
from serve.bundle.manifest import Manifest, Precision
from serve.runtime.cpu import Sessions
from serve.scheduler.sequence import DecodingSequence, SequenceSpec
from serve.settings import ServeSettings
from serve.system import available_cpus

Part = Literal["modes", "prefill", "head-of-line", "work-conservation"]


class SchedulingOptions(BaseSettings):
    """All options."""

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_BENCH_SCHEDULING_", frozen=True, extra="forbid", nested_model_default_partial_update=True
    )

    out: Path = Field(description="folder for a Markdown and a JSON file per part")
    document: Path | None = Field(
        None, description="Markdown file; fills in the section of each part, as <!-- modes -->"
    )
    parts: tuple[Part, ...] = Field(
        ("modes", "prefill", "head-of-line", "work-conservation"), min_length=1, description="parts to measure"
    )
    run: Path | None = Field(None, description="training run or fp32 bundle of a second, trained model")
    data: str = Field("multi30k:en-de", description="test data as in `dragoman evaluate`")
    random: TransformerConfig = Field(BASE, description="shape of the random model")
    vocabulary_size: int = Field(BASE_VOCABULARY_SIZE, gt=8, le=MOST_TOKENS, description="tokens of the random model")
    precision: Precision = Field("int8", description="precision of the models")
    sentences: int | None = Field(None, gt=0, description="number of sentences; default: all")
    rounds: int = Field(5, gt=0, description="rounds in which all variants take turns")
    slots: int = Field(32, ge=4, description="rows of each engine")
    alone: int = Field(50, gt=0, description="modes: sentences that are also translated one at a time")
    budgets: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        (64, 128, 256, 512), min_length=1, description="prefill: token budgets to compare"
    )
    bursts: int = Field(10, gt=0, description="prefill: bursts of sentences per round")
    neighbors: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        (1, 4, 16), min_length=1, description="head-of-line: concurrent requests of maximum length per engine"
    )
    short_requests: int = Field(100, gt=1, description="head-of-line: sequential short requests per round")
    short_tokens: int = Field(5, gt=1, description="head-of-line: source tokens, EOS included, and target tokens")


@dataclass(frozen=True, slots=True)
class ScheduledModel:
    """A model: its bundle, and its sentences, also in a file for other processes."""

    name: str
    folder: Path
    sentences: list[SourceSentence]
    sentences_file: Path

    @property
    def manifest(self) -> Manifest:
        """The manifest of the bundle."""
        return Bundle.open(self.folder).manifest

    def sessions(self) -> Sessions:
        """Opens the bundle, with one thread."""
        return Sessions.load(Bundle.open(self.folder), threads=1)

    def specs(self, beam_size: int = 1) -> list[SequenceSpec]:
        """Returns all sentences with their search options."""
        return [SequenceSpec(each.source_ids, search_options(*each.limits, beam_size)) for each in self.sentences]

    def made_up(self, source_tokens: int, target_tokens: int) -> SequenceSpec:
        """Returns a source of `source_tokens` whose translation has exactly `target_tokens`."""
        words = [token for sentence in self.sentences for token in sentence.source_ids[:-1]]
        body = (words * source_tokens)[: source_tokens - 1]
        return SequenceSpec((*body, self.manifest.eos_id), search_options(target_tokens, target_tokens))


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class PartMeasure:
    """A part of the benchmark: progress steps per model, measurement, and table of the results by model name."""

    steps: Callable[[SchedulingOptions], int]
    measure: Callable[[ScheduledModel, SchedulingOptions, Progress], list[Any]]
    table: Callable[[dict[str, list[Any]]], str]


def fill_in_turns(
    results: list[Result], options: SchedulingOptions, progress: Progress, add_round: Callable[[Result], None]
) -> list[Result]:
    """Adds every round to each result, in turns."""
    for _ in range(options.rounds):
        for result in results:
            add_round(result)
            progress.update()
    return results


@contextmanager
def run_engines(sessions: Sessions, slots: int, budget: int | None = None) -> Iterator[CountedEngines]:
    """Runs an engine per CPU until the block ends; `budget` is the prefill token budget."""
    budget = budget or ServeSettings().prefill_token_budget
    engines = CountedEngines(sessions, engines=available_cpus(), slots=slots, prefill_token_budget=budget)
    try:
        yield engines
    finally:
        engines.close()


TOGETHER, ALONE = "together", "alone"
# The scheduler forms its own batches and ignores this value.
BATCHING = "1:examples"


@dataclass(frozen=True, slots=True)
class ModeResult:
    """One mode, with one figure per round.

    Attributes:
        tokens_per_second: all sentences at once.
        alone_ms: mean time of a sentence, one at a time.
    """

    mode: str
    engines: int
    threads: int
    tokens_per_second: list[float]
    alone_ms: list[float]


def measure_modes(model: ScheduledModel, options: SchedulingOptions, progress: Progress) -> list[ModeResult]:
    """Measures both modes in turns.

    Raises:
        SystemFailedError: if one fails.
    """
    cpus = available_cpus()
    shapes = {"throughput": (cpus, 1), "latency": (1, cpus)}
    task = {"sentences": str(model.sentences_file), "beam_size": 1, "batching": BATCHING}
    tasks = {ALONE: {**task, "alone": options.alone}, TOGETHER: task}
    players = []
    for mode, (engines, threads) in shapes.items():
        sizes = {"copies": engines, "threads": threads, "slots": options.slots}
        launch = Launch(mode, "benchmarks.systems.engine:load_engines", {"folder": str(model.folder), **sizes})
        players.append(Player(launch, tasks))
    played = play(players, rounds=options.rounds, seconds=None, progress=progress)
    return [
        ModeResult(
            mode,
            *shape,
            [each.tokens_per_second[TOGETHER] for each in played[mode]],
            [1e3 * each.seconds[ALONE] / min(options.alone, len(model.sentences)) for each in played[mode]],
        )
        for mode, shape in shapes.items()
    ]


def modes_table(results: dict[str, list[ModeResult]]) -> str:
    """Returns the table of all models; ratios are to the first mode."""
    heading = ["model", "mode", "engines x threads", "all at once, tokens/s", "one sentence at a time, ms"]
    rows = []
    for name, modes in results.items():
        first = modes[0]
        for mode in modes:
            base = (None, None) if mode is first else (first.tokens_per_second, first.alone_ms)
            cells = [format_spread(mode.tokens_per_second, base[0]), format_spread(mode.alone_ms, base[1])]
            rows.append([name, mode.mode, f"{mode.engines} x {mode.threads}", *cells])
    return markdown_table(heading, rows, words=3)


MODES = PartMeasure(lambda options: steps_of(2, 2, options.rounds), measure_modes, modes_table)


@dataclass(frozen=True, slots=True)
class Beside:
    """Latencies of short requests, from submission to answer, and of long ones; one figure per round.

    Attributes:
        neighbors: long requests that run in each engine all the time.
        long_median_ms: empty without long requests.
    """

    neighbors: int
    median_ms: list[float]
    p99_ms: list[float]
    long_median_ms: list[float]


def measure_head_of_line(model: ScheduledModel, options: SchedulingOptions, progress: Progress) -> list[Beside]:
    """Measures short requests alone and with each number of long ones, in turns.

    Raises:
        ServiceError: if an engine fails.
    """
    sessions = model.sessions()
    manifest = sessions.manifest
    short = model.made_up(options.short_tokens, options.short_tokens)
    long = model.made_up(manifest.max_source_tokens, manifest.max_target_tokens)

    def add_round(result: Beside) -> None:
        latencies, long_latencies = _latencies_ms(sessions, options, short, long, available_cpus() * result.neighbors)
        median, p99 = np.percentile(latencies, (50, 99)).tolist()
        result.median_ms.append(median)
        result.p99_ms.append(p99)
        if long_latencies:
            result.long_median_ms.append(float(np.median(long_latencies)))

    results = [Beside(neighbors, [], [], []) for neighbors in (0, *dict.fromkeys(options.neighbors))]
    return fill_in_turns(results, options, progress, add_round)


def _latencies_ms(
    sessions: Sessions, options: SchedulingOptions, short: SequenceSpec, long: SequenceSpec, count: int
) -> tuple[list[float], list[float]]:
    """Returns the latencies of sequential short requests, and of `count` concurrent long ones, in milliseconds."""
    long_latencies: list[float] = []
    stopping = threading.Event()
    with run_engines(sessions, options.slots) as engines:

        def replace(ended: DecodingSequence) -> None:
            if not stopping.is_set() and ended.error is None:
                if ended.options == long.options:
                    long_latencies.append(_latency_ms(ended))
                engines.submit([long], replace)

        # The first ones have different lengths, so that later ones do not start and end together.
        for number in range(count):
            target_tokens = 1 + number * long.options.max_target_tokens // count
            engines.submit([long._replace(options=search_options(target_tokens, target_tokens))], replace)
        warm_up, measured = options.short_requests // 10, options.short_requests
        latencies = [_latency_ms(*engines.translate([short])) for _ in range(warm_up + measured)]
        stopping.set()
    return latencies[warm_up:], long_latencies


def _latency_ms(sequence: DecodingSequence) -> float:
    return 1e3 * (sequence.finished_seconds - sequence.submitted_seconds)


def head_of_line_table(results: dict[str, list[Beside]]) -> str:
    """Returns the table of all models; ratios are to the short request alone."""
    heading = ["model", "long requests in each engine", "short request, median, ms", "p99, ms", "long request, ms"]
    rows = []
    for name, found in results.items():
        alone = found[0]
        for result in found:
            base = (None, None) if result is alone else (alone.median_ms, alone.p99_ms)
            rows.append(
                [
                    name,
                    str(result.neighbors),
                    format_spread(result.median_ms, base[0]),
                    format_spread(result.p99_ms, base[1]),
                    f"{Spread.of(result.long_median_ms).median:,.0f}" if result.long_median_ms else "-",
                ]
            )
    return markdown_table(heading, rows)


HEAD_OF_LINE = PartMeasure(
    lambda options: options.rounds * (1 + len(set(options.neighbors))), measure_head_of_line, head_of_line_table
)


@dataclass(frozen=True, slots=True)
class Conserved:
    """All sentences with one search.

    Attributes:
        search: its name.
        occupancy: share of slots taken in steps while sequences wait, one figure per round.
        gaps: between two decoder runs of an engine, without other runs of ONNX Runtime, per round.
    """

    search: str
    occupancy: list[float]
    gaps: list[Quantiles]


def measure_conservation(model: ScheduledModel, options: SchedulingOptions, progress: Progress) -> list[Conserved]:
    """Translates all sentences with each search, in turns.

    Raises:
        ServiceError: if an engine fails.
    """
    sessions = model.sessions()

    def add_round(result: Conserved) -> None:
        with run_engines(sessions, options.slots) as engines:
            engines.translate(model.specs(SEARCHES[result.search]))
        result.occupancy.append(engines.occupancy)
        gaps = [gap for runtime in engines.runtimes for gap in gaps_us(runtime.stopwatch.spans)]
        result.gaps.append(Quantiles.of(gaps))

    return fill_in_turns([Conserved(search, [], []) for search in SEARCHES], options, progress, add_round)


def conservation_table(results: dict[str, list[Conserved]]) -> str:
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


WORK_CONSERVATION = PartMeasure(
    lambda options: options.rounds * len(SEARCHES), measure_conservation, conservation_table
)
