"""The phases of an engine step, and the operators of the decoder.

The scheduler, engine and runtime of the server run in this process under a steady load: all rows are occupied, and a
new sequence starts whenever one ends. The engine in Python runs twice for each number of rows: once for its phases,
from the spans of a stopwatch, and once with the profiler of ONNX Runtime. The profiler adds about a microsecond per
node: its shares are more reliable than its sums. It writes Chrome trace events: a list of objects, times in
microseconds. A native engine counts its phases itself.
"""

import json
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from benchmarks.harness.errors import BenchmarkError
from benchmarks.harness.plan import Plan, Positive
from benchmarks.harness.report import Figures, Report, Table
from benchmarks.harness.rounds import in_turns
from benchmarks.systems.engine import PHASES, Span, WatchedEngine, gaps_us, search_options
from benchmarks.systems.native_engine import LiveNativeEngines, PhaseSeconds, settings_of
from benchmarks.systems.translating import draw_sentences
from serve.bundle.bundle import Bundle
from serve.bundle.manifest import Manifest
from serve.engine.native.model import open_model, runs_natively
from serve.native.loop import LoopModel
from serve.runtime.host import HostSessions
from serve.runtime.placement import choose_device
from serve.runtime.sessions import load_sessions
from serve.scheduler.sequence import SequenceSpec
from serve.settings import ServeSettings

SEED = 1


class ProfilePlan(Plan):
    """The bundle and its load."""

    libraries = ("onnxruntime", "numpy")

    rounds: int = Field(1, ge=1, description="turns of each number of rows")
    bundle: Path = Field(description="bundle for the CPU, made by `dragoman export`")
    rows: tuple[Positive, ...] = Field((1, 8, 32), min_length=1, description="rows of every step")
    beam_size: int = Field(1, gt=0, description="rows of a sequence")
    source_tokens: int = Field(20, gt=1, description="length of each source, EOS included")
    target_tokens: int = Field(32, gt=0, description="length of each target")
    steps: int = Field(300, gt=1, description="measured steps per number of rows")
    threads: int = Field(1, gt=0, description="ONNX Runtime threads of the engine")
    heaviest: int = Field(8, ge=0, description="number of slowest nodes to list")

    def measure(self) -> Report:
        """Measures the phases without the profiler, and the nodes of the decoder with it."""
        bundle = Bundle.open(self.bundle)
        for field in ("source_tokens", "target_tokens"):
            most, given = getattr(bundle.manifest, f"max_{field}"), getattr(self, field)
            if given > most:
                raise BenchmarkError(f"{field}: expected at most {most}, as the bundle allows, got {given}")
        for rows in self.rows:
            if rows % self.beam_size:
                raise BenchmarkError(f"rows: expected multiples of beam_size {self.beam_size}, got {rows}")
        sessions = load_sessions(bundle, self.threads)
        native = open_model(bundle, self.threads) if runs_natively(choose_device("auto", bundle), bundle) else None

        def profile(rows: int) -> dict[str, Figures]:
            found = step_figures(self._steady_spans(sessions, rows))
            if native is not None:
                found |= self._native_figures(bundle, native, rows)
            with TemporaryDirectory(prefix="dragoman-") as folder:
                profiled = load_sessions(bundle, self.threads, profile_prefix=Path(folder) / "decoder")
                self._steady_spans(profiled, rows)
                nodes, between_us = read_profile(Path(profiled.decoder.end_profiling()), self.steps)
            return found | graph_figures(nodes, between_us, self.heaviest)

        found = in_turns(self.rows, self.rounds, "profile", profile)
        columns = {f"{rows} row{'' if rows == '1' else 's'}": rounds for rows, rounds in found.items()}
        names = dict.fromkeys(name for (first, *_) in found.values() for name in first)
        tables = [
            Table(name, {rows: [each[name] for each in rounds] for rows, rounds in columns.items()}) for name in names
        ]
        return Report(tables, f"threads of the engine: {self.threads}")

    def _steady_spans(self, sessions: HostSessions, rows: int) -> list[Span]:
        """Returns the spans of the measured steps of an engine in this thread, after others that occupy all rows."""
        engine = WatchedEngine(sessions, rows, ServeSettings().prefill_token_budget)
        sequences = rows // self.beam_size
        sources = cycle(self._sources(sessions.manifest, sequences))
        engine.occupy(sources, sequences, self.target_tokens, self.beam_size)
        spans = engine.stopwatch.spans
        # After twice the target tokens all first sequences have ended.
        for steps in (2 * self.target_tokens, self.steps):
            spans.clear()
            for _ in range(steps):
                engine.step()
        return spans

    def _native_figures(self, bundle: Bundle, model: LoopModel, rows: int) -> dict[str, Figures]:
        """Returns the figures of a native engine with more sequences than rows; they end at different steps."""
        sequences = rows // self.beam_size
        each_row = 2 + self.steps // self.target_tokens
        sources = cycle(self._sources(bundle.manifest, sequences))
        lengths = [1 + number * self.target_tokens // sequences for number in range(sequences)]
        lengths += [self.target_tokens] * (sequences * each_row)
        specs = [SequenceSpec(next(sources), search_options(length, length, self.beam_size)) for length in lengths]
        settings = settings_of(bundle, engines=1, slots=rows, prefill_token_budget=None)
        with closing(LiveNativeEngines(bundle, settings, model)) as engine:
            engine.translate(specs[:sequences])
            before, started = engine.phases, time.perf_counter()
            engine.translate(specs)
            took, after = time.perf_counter() - started, engine.phases
        return native_figures(before, after, took)

    def _sources(self, manifest: Manifest, count: int) -> list[tuple[int, ...]]:
        lengths = [(self.source_tokens, self.target_tokens)] * count
        return [each.source_ids for each in draw_sentences(SEED, lengths, manifest.vocabulary_size, manifest.eos_id)]


def native_figures(before: PhaseSeconds, after: PhaseSeconds, took_seconds: float) -> dict[str, Figures]:
    """Returns the figures of a native engine between two moments by table; admission and results are the rest."""
    phases = {
        "encode": after.encode - before.encode,
        "step": after.step - before.step,
        "search": after.search - before.search,
    }
    phases["rest"] = took_seconds - sum(phases.values())
    steps = after.steps - before.steps
    return {
        "phase of the native engine: us per step": {name: 1e6 * each / steps for name, each in phases.items()},
        "phase of the native engine: % of the time": {name: 100 * each / took_seconds for name, each in phases.items()},
    }


def phase_times_us(spans: Iterable[Span]) -> dict[str, list[float]]:
    """Returns the own times of each phase in the order of a step; one entry per step that has it."""
    times: dict[str, list[float]] = {name: [] for name in PHASES}
    current_ns: defaultdict[str, int] = defaultdict(int)
    for span in spans:
        current_ns[span.name] += span.own_ns
        if span.name == "step":
            for name, own_ns in current_ns.items():
                times[name].append(own_ns / 1e3)
            current_ns.clear()
    return {name: some for name, some in times.items() if some}


# Suffix of a node's name in the profile, and names of a run and of the run without its preparation.
KERNEL_SUFFIX = "_kernel_time"
RUN, EXECUTION = "model_run", "SequentialExecutor::Execute"


class NodeTime(NamedTuple):
    """A node of the graph.

    Attributes:
        output: shape of a row of its first output in the largest run, as `x 4000`.
        microseconds: per run, mean of the middle half of all runs, which excludes the effect of other processes.
    """

    name: str
    operator: str
    output: str
    microseconds: float


def read_profile(path: Path, runs: int) -> tuple[list[NodeTime], float]:
    """Reads a profile, of which the last `runs` runs count.

    Returns the nodes, the slowest first, and the microseconds of a run outside all nodes, mostly overhead of the
    profiler.
    """
    events: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    start = [event["ts"] for event in events if event["name"] == RUN][-runs]
    counted = [event for event in events if event.get("ts", 0) >= start and event["ph"] == "X"]
    by_node = defaultdict[str, list[dict[str, Any]]](list)
    for event in counted:
        if event["name"].endswith(KERNEL_SUFFIX):
            by_node[event["args"]["node_index"]].append(event)  # names may be empty
    nodes = sorted(map(_node, by_node.values()), key=lambda node: -node.microseconds)
    inside = middle_mean([event["dur"] for event in counted if event["name"] == EXECUTION])
    return nodes, inside - sum(node.microseconds for node in nodes)


def middle_mean(times: Sequence[float]) -> float:
    """Returns the mean of the middle half; finer than the median, because the times are whole microseconds."""
    ordered, outside = sorted(times), len(times) // 4
    return statistics.mean(ordered[outside : len(ordered) - outside])


def _node(events: Sequence[dict[str, Any]]) -> NodeTime:
    largest = max(events, key=lambda event: math.prod(_output_shape(event)))
    return NodeTime(
        largest["name"].removesuffix(KERNEL_SUFFIX),
        largest["args"]["op_name"],
        "".join(f" x {size}" for size in _output_shape(largest)[1:]).strip(),
        middle_mean([event["dur"] for event in events]),
    )


def _output_shape(event: dict[str, Any]) -> list[int]:
    """Returns the shape of the first output; the profiler maps its type to the sizes."""
    outputs: list[dict[str, list[int]]] = event["args"]["output_type_shape"]
    return [size for sizes in outputs[:1] for each in sizes.values() for size in each]


def step_figures(spans: Sequence[Span]) -> dict[str, Figures]:
    """Returns the figures of measured steps by table; median and p99 of a phase cover the steps that have it."""
    steps = [(span.ended_ns - span.started_ns) / 1e3 for span in spans if span.name == "step"]
    phases = {PHASES[name]: some for name, some in phase_times_us(spans).items()}
    everything = sum(map(sum, phases.values()))
    times = {**phases, "whole step": steps, "between decoder runs, no run": gaps_us(spans)}
    return {
        "phase of a step: median, us": {row: float(np.median(some)) for row, some in times.items()},
        "phase of a step: p99, us": {row: float(np.percentile(some, 99)) for row, some in times.items()},
        "phase: % of the time": {row: 100 * sum(some) / everything for row, some in phases.items()},
        "phase: % of the steps have it": {row: 100 * len(some) / len(steps) for row, some in phases.items()},
    }


def graph_figures(nodes: Sequence[NodeTime], between_us: float, heaviest: int) -> dict[str, Figures]:
    """Returns the figures of the decoder by table: its operators and its `heaviest` slowest nodes."""
    operators: defaultdict[str, float] = defaultdict(float)
    for node in nodes:
        operators[node.operator] += node.microseconds
    slowest = dict(sorted(operators.items(), key=lambda each: -each[1]))
    everything = sum(slowest.values())
    return {
        "operator of the decoder: us per step": {**slowest, "between nodes": between_us},
        "operator of the decoder: % of the nodes": {row: 100 * each / everything for row, each in slowest.items()},
        "heaviest nodes: us per step": {
            f"{node.name}: {node.operator} {node.output}": node.microseconds for node in nodes[:heaviest]
        },
    }
