"""`dragoman profile`: the phases of an engine step, and the operators of the decoder.

The engine runs twice under a steady load for each number of rows: once for its phases, from the spans of a stopwatch,
and once with the profiler of ONNX Runtime. The profiler writes Chrome trace events: a list of objects, times in
microseconds.
"""

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict
from tqdm import tqdm

from benchmarks.systems.engine import (
    ADMIT,
    BRANCH,
    DECODER,
    ENCODER,
    LOG_PROBABILITIES,
    PREFILL,
    RETIRE,
    RUNS,
    SELECT,
    STEP,
    TOPK,
    Span,
    SteadyEngine,
    SteadyLoad,
)
from loadtest.report_files import markdown_table
from model.provenance import Provenance, command_line
from serve.bundle.bundle import Bundle, BundleError
from serve.bundle.manifest import Manifest
from serve.runtime.cpu import Sessions
from serve.settings import ServeSettings

# Suffix of a node's name in the profile.
KERNEL_SUFFIX = "_kernel_time"
RUN, EXECUTION = "model_run", "SequentialExecutor::Execute"


@dataclass(frozen=True, slots=True)
class NodeTime:
    """A node of the graph; its share is of the time of all nodes.

    Attributes:
        output: shape of its first output in the largest run, as `32 x 4000`.
        microseconds: per run, mean of the middle half of all runs, which excludes the effect of other processes.
    """

    name: str
    operator: str
    output: str
    microseconds: float
    share: float


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """All nodes of one type: microseconds per run, and share of the time of all nodes."""

    operator: str
    nodes: int
    microseconds: float
    share: float


@dataclass(frozen=True, slots=True)
class GraphTimes:
    """The nodes of a graph, the slowest first.

    Attributes:
        between_microseconds: time of a run outside all nodes, mean of the middle half; mostly overhead of the profiler.
    """

    nodes: list[NodeTime]
    between_microseconds: float

    @classmethod
    def read(cls, path: Path, runs: int) -> Self:
        """Reads a profile, of which the last `runs` runs count."""
        events: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        start = [event["ts"] for event in events if event["name"] == RUN][-runs]
        counted = [event for event in events if event.get("ts", 0) >= start and event["ph"] == "X"]
        nodes = _nodes([event for event in counted if event["name"].endswith(KERNEL_SUFFIX)])
        inside = middle_mean([event["dur"] for event in counted if event["name"] == EXECUTION])
        return cls(nodes, inside - sum(node.microseconds for node in nodes))

    @property
    def operators(self) -> list[OperatorTime]:
        """The types of nodes, the slowest first."""
        nodes = defaultdict[str, list[NodeTime]](list)
        for node in self.nodes:
            nodes[node.operator].append(node)
        return sorted(
            (
                OperatorTime(
                    operator, len(alike), sum(node.microseconds for node in alike), sum(node.share for node in alike)
                )
                for operator, alike in nodes.items()
            ),
            key=lambda each: -each.microseconds,
        )


def middle_mean(times: Sequence[float]) -> float:
    """Returns the mean of the middle half; finer than the median, because the times are whole microseconds."""
    ordered, outside = sorted(times), len(times) // 4
    return statistics.mean(ordered[outside : len(ordered) - outside])


def _nodes(events: Iterable[dict[str, Any]]) -> list[NodeTime]:
    all_times = defaultdict[str, list[float]](list)
    largest: dict[str, dict[str, Any]] = {}
    for event in events:
        index = event["args"]["node_index"]  # names may be empty
        all_times[index].append(event["dur"])
        largest[index] = max(largest.get(index, event), event, key=_output_size)
    times = {index: middle_mean(some) for index, some in all_times.items()}
    everything = sum(times.values())
    nodes = [
        NodeTime(
            event["name"].removesuffix(KERNEL_SUFFIX),
            event["args"]["op_name"],
            " x ".join(map(str, _output_shape(event))),
            times[index],
            times[index] / everything,
        )
        for index, event in largest.items()
    ]
    return sorted(nodes, key=lambda node: -node.microseconds)


def _output_size(event: dict[str, Any]) -> int:
    return math.prod(_output_shape(event))


def _output_shape(event: dict[str, Any]) -> list[int]:
    """Returns the shape of the first output; the profiler maps its type to the sizes."""
    outputs: list[dict[str, list[int]]] = event["args"]["output_type_shape"]
    return [size for sizes in outputs[:1] for each in sizes.values() for size in each]


# In the order of a step; the remainder is last.
PHASES = {
    ADMIT: "admit",
    ENCODER: "prefill: encoder run",
    PREFILL: "prefill: around it",
    DECODER: "decode: decoder run",
    LOG_PROBABILITIES: "select: log-probabilities run",
    TOPK: "select: top-k run",
    SELECT: "select: around it",
    BRANCH: "branch",
    RETIRE: "retire",
    STEP: "rest",
}


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Quantiles of some times, in microseconds."""

    median: float
    p99: float

    @classmethod
    def of(cls, times_us: Sequence[float] | NDArray[np.float64]) -> Self:
        """Returns the quantiles of one or more times."""
        median, p99 = np.percentile(times_us, (50, 99)).tolist()
        return cls(median, p99)


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a step.

    Attributes:
        occurrence: share of steps that have it.
        times: in those steps.
        share: of the time of all steps.
    """

    name: str
    occurrence: float
    times: Quantiles
    share: float


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The times of whole steps, of their phases in order, and of the gaps between decoder runs without other runs."""

    steps: int
    whole: Quantiles
    phases: list[Phase]
    gaps: Quantiles

    @classmethod
    def of(cls, spans: Sequence[Span]) -> Self:
        """Summarizes the spans of at least two whole steps."""
        steps = [span for span in spans if span.name == STEP]
        phases = _phases(spans)
        return cls(
            len(steps),
            Quantiles.of([(span.ended_ns - span.started_ns) / 1e3 for span in steps]),
            [phases[name] for name in PHASES if name in phases],
            Quantiles.of(gaps_us(spans)),
        )


def gaps_us(spans: Iterable[Span]) -> list[float]:
    """Returns the times between successive decoder runs, without other runs of ONNX Runtime."""
    gaps: list[float] = []
    ended_ns: int | None = None
    other_ns = 0
    for span in spans:
        if span.name == DECODER:
            if ended_ns is not None:
                gaps.append((span.started_ns - ended_ns - other_ns) / 1e3)
            ended_ns, other_ns = span.ended_ns, 0
        elif span.name in RUNS:
            other_ns += span.own_ns
    return gaps


def _phases(spans: Iterable[Span]) -> dict[str, Phase]:
    times_us: defaultdict[str, list[float]] = defaultdict(list)  # by phase; one entry per step that has it
    current_ns: defaultdict[str, int] = defaultdict(int)
    for span in spans:
        current_ns[span.name] += span.own_ns
        if span.name == STEP:
            for name, own_ns in current_ns.items():
                times_us[name].append(own_ns / 1e3)
            current_ns.clear()
    steps = len(times_us[STEP])
    everything_us = sum(map(sum, times_us.values()))
    return {
        name: Phase(PHASES[name], len(times) / steps, Quantiles.of(times), sum(times) / everything_us)
        for name, times in times_us.items()
    }


@dataclass(frozen=True, slots=True)
class ProfileResult:
    """Steps with one number of rows: their phases without the profiler, the nodes of the decoder with it."""

    rows: int
    steps: StepTimes
    decoder: GraphTimes


def format_profile(results: Sequence[ProfileResult], heaviest: int) -> str:
    """Returns all tables, with the slowest nodes."""
    tables = [_phase_table(results), _operators(results)]
    return "\n\n".join([*tables, _node_table(results, heaviest)] if heaviest else tables)


def _phase_table(results: Sequence[ProfileResult]) -> str:
    heading = ["phase of a step: median / p99, us; share", *(_rows_of(result) for result in results)]
    found = [{phase.name: phase for phase in result.steps.phases} for result in results]
    lines = []
    for name in PHASES.values():
        cells = [
            f"{_times(phases[name].times)}; {phases[name].share:.1%}{_occurrence(phases[name].occurrence)}"
            if name in phases
            else "-"
            for phases in found
        ]
        lines.append([name, *cells])
    lines.append(["whole step", *(_times(result.steps.whole) for result in results)])
    lines.append(["between decoder runs, no run", *(_times(result.steps.gaps) for result in results)])
    return markdown_table(heading, [line for line in lines if set(line[1:]) != {"-"}])


def _operators(results: Sequence[ProfileResult]) -> str:
    found = [{each.operator: each for each in result.decoder.operators} for result in results]
    heading = ["operator of the decoder: us a step; share", "nodes", *(_rows_of(result) for result in results)]
    lines = [
        [name, str(operators.nodes), *(f"{each[name].microseconds:,.0f}; {each[name].share:.1%}" for each in found)]
        for name, operators in found[-1].items()
    ]
    between = [f"{result.decoder.between_microseconds:,.0f}" for result in results]
    return markdown_table(heading, [*lines, ["between nodes", "", *between]])


def _node_table(results: Sequence[ProfileResult], heaviest: int) -> str:
    found = [{node.name: node for node in result.decoder.nodes} for result in results]
    heading = ["heaviest nodes: us a step; share", "operator", "output", *(_rows_of(result) for result in results)]
    lines = []
    for node in results[-1].decoder.nodes[:heaviest]:
        cells = [f"{each[node.name].microseconds:,.0f}; {each[node.name].share:.1%}" for each in found]
        lines.append([node.name, node.operator, node.output, *cells])
    return markdown_table(heading, lines, words=3)


def _rows_of(result: ProfileResult) -> str:
    return f"{result.rows} row{'' if result.rows == 1 else 's'}"


def _times(times: Quantiles) -> str:
    return f"{times.median:,.0f} / {times.p99:,.0f}"


def _occurrence(share: float) -> str:
    return "" if share == 1 else f" (in {share:.0%} of steps)"


LIBRARIES = ("onnxruntime", "numpy")


class ProfileCommand(BaseSettings):
    """Measures the phases of an engine step and the operators of the decoder.

    The scheduler, engine and runtime of the server run in this process under a steady load: all rows are occupied, and
    a new sequence starts whenever one ends. A stopwatch wraps their phases; the server itself has no such code. A
    second run uses the profiler of ONNX Runtime, which adds about a microsecond per node: its shares are more reliable
    than its sums.

    Median and p99 of a phase cover the steps that have it; its share is of all steps. Use an otherwise idle machine.
    """

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_PROFILE_", frozen=True, extra="forbid", cli_shortcuts={"json-file": "json"}
    )

    bundle: CliPositionalArg[Path] = Field(description="bundle made by `dragoman export`")
    rows: tuple[Annotated[int, Field(gt=0)], ...] = Field((1, 8, 32), min_length=1, description="rows of every step")
    beam_size: int = Field(1, gt=0, description="rows of a sequence")
    source_tokens: int = Field(20, gt=1, description="length of each source, EOS included")
    target_tokens: int = Field(32, gt=0, description="length of each target")
    steps: int = Field(300, gt=1, description="measured steps per number of rows")
    threads: int = Field(1, gt=0, description="ONNX Runtime threads of the engine")
    heaviest: int = Field(8, ge=0, description="number of slowest nodes to list")
    json_file: Path | None = Field(None, description="file for all figures")

    def cli_cmd(self) -> None:
        """Measures and prints."""
        try:
            bundle = Bundle.open(self.bundle)
            self._check(bundle.manifest)
            threads = f"threads of the engine: {self.threads}"
            provenance = Provenance.now(command_line("profile", self, positional="bundle"), LIBRARIES, threads)
            results = self._measure(bundle)
            print(f"{format_profile(results, self.heaviest)}\n\n{provenance}")
            if self.json_file is not None:
                figures = {"provenance": asdict(provenance), "results": [asdict(result) for result in results]}
                self.json_file.write_text(f"{json.dumps(figures, indent=1)}\n", encoding="utf-8")
        except (BundleError, OSError) as error:
            raise SystemExit(f"dragoman profile: {error}") from error

    def _check(self, manifest: Manifest) -> None:
        for option, value, most in (
            ("source-tokens", self.source_tokens, manifest.max_source_tokens),
            ("target-tokens", self.target_tokens, manifest.max_target_tokens),
        ):
            if value > most:
                raise SystemExit(f"dragoman profile: {option}: {value}: expected at most {most}, as the bundle allows")
        file = self.json_file
        if file is not None and (file.is_dir() or not file.parent.is_dir()):
            raise SystemExit(f"dragoman profile: json: {file}: expected a file in an existing folder")
        for rows in self.rows:
            if rows % self.beam_size:
                raise SystemExit(f"dragoman profile: rows: {rows}: expected a multiple of the beam size")

    def _measure(self, bundle: Bundle) -> list[ProfileResult]:
        sessions = Sessions.load(bundle, self.threads)
        loads = [self._load(rows) for rows in dict.fromkeys(self.rows)]
        steps = 2 * len(loads) * (2 * self.target_tokens + self.steps)
        with tqdm(total=steps, unit=" steps", disable=None) as progress:
            return [
                ProfileResult(
                    load.rows,
                    self._phases(sessions, load, progress.update),
                    self._operators(bundle, load, progress.update),
                )
                for load in loads
            ]

    def _load(self, rows: int) -> SteadyLoad:
        budget = ServeSettings().prefill_token_budget
        return SteadyLoad(rows, self.beam_size, self.source_tokens, self.target_tokens, budget)

    def _phases(self, sessions: Sessions, load: SteadyLoad, advance: Callable[[], Any]) -> StepTimes:
        engine = SteadyEngine(sessions, load)
        engine.run(engine.warm_up_steps, advance)
        return StepTimes.of(engine.run(self.steps, advance))

    def _operators(self, bundle: Bundle, load: SteadyLoad, advance: Callable[[], Any]) -> GraphTimes:
        with TemporaryDirectory(prefix="dragoman-") as folder:
            sessions = Sessions.load(bundle, self.threads, profile_prefix=Path(folder) / "decoder")
            engine = SteadyEngine(sessions, load)
            engine.run(engine.warm_up_steps, advance)
            engine.run(self.steps, advance)
            return GraphTimes.read(Path(sessions.decoder.end_profiling()), self.steps)
