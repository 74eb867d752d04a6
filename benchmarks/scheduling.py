"""How the engines schedule concurrent requests, in four parts.

Modes: both modes of the server, all sentences at once, and some of them one at a time. Prefill: the cost and the
benefit of a token budget, the maximum of source tokens that join between two steps. Half of an engine's rows run when a
burst of sentences arrives for the other half. Head of line: the latency of a short request while others of maximum
length run; a server that batches whole requests answers the short one only after the long ones. Work conservation: the
occupancy of the slots while sequences wait, and the time between decoder runs; all sentences arrive at once.
"""

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
from pydantic import Field

from benchmarks.harness.plan import Positive
from benchmarks.harness.process import Launch
from benchmarks.harness.report import Columns, Figures, Report, Table
from benchmarks.harness.rounds import in_turns, play
from benchmarks.systems.compared_model import LOADERS, ModelsPlan
from benchmarks.systems.engine import (
    CountedEngines,
    WatchedEngine,
    gaps_us,
    occupancy,
    raise_error,
    search_options,
    specs_of,
)
from benchmarks.systems.translating import SEARCHES, SourceSentence, write_sentences
from serve.bundle.bundle import Bundle
from serve.bundle.manifest import Precision
from serve.runtime.host import HostSessions
from serve.runtime.sessions import load_sessions
from serve.scheduler.sequence import DecodingSequence, SequenceSpec, SequenceState
from serve.system import available_cpus

Part = Literal["modes", "prefill", "head-of-line", "work-conservation"]
# Steps between two bursts.
CALM_STEPS = 8
# Target tokens of a burst's sequences.
BURST_TOKENS = 8
OCCUPANCY = "slots taken while something waits, %"
ALL_AT_ONCE, ALONE = "all at once, tokens/s", "one sentence at a time, ms"


class SchedulingPlan(ModelsPlan):
    """The parameters of this benchmark."""

    libraries = ("onnxruntime", "numpy")

    parts: tuple[Part, ...] = Field(
        ("modes", "prefill", "head-of-line", "work-conservation"), min_length=1, description="parts to measure"
    )
    precision: Precision = Field("int8", description="precision of the models")
    slots: int = Field(32, ge=4, description="rows of each engine")
    alone: int = Field(50, gt=0, description="modes: sentences that are also translated one at a time")
    budgets: tuple[Positive, ...] = Field(
        (64, 128, 256, 512), min_length=1, description="prefill: token budgets to compare"
    )
    bursts: int = Field(10, gt=0, description="prefill: bursts of sentences per round")
    neighbors: tuple[Positive, ...] = Field(
        (1, 4, 16), min_length=1, description="head-of-line: concurrent requests of maximum length per engine"
    )
    short_requests: int = Field(100, gt=1, description="head-of-line: sequential short requests per round")
    short_tokens: int = Field(5, gt=1, description="head-of-line: source tokens, EOS included, and target tokens")

    def measure(self) -> Report:
        """Measures every part of every model; the variants of a part take turns."""
        tables = []
        with TemporaryDirectory(prefix="dragoman-") as workshop:
            models = []
            for model, sentences in self.models():
                folder = Path(workshop) / model.name
                model.write(folder, "dragoman", self.precision)
                sessions = load_sessions(Bundle.open(folder), threads=1)
                text = f"**{model.name}**: {model.describe()}; {len(sentences):,} sentences."
                models.append((ScheduledModel(model.name, folder, sessions, sentences, self), text))
            for part in self.parts:
                tables += [replace(model.measure(part), text=f"{part}, {text}") for model, text in models]
        return Report(tables, f"threads of all engines: {available_cpus()}")


@dataclass(frozen=True, slots=True)
class ScheduledModel:
    """A model: its bundle, opened with one thread, its sentences, and the parameters of the benchmark."""

    name: str
    folder: Path
    sessions: HostSessions
    sentences: list[SourceSentence]
    plan: SchedulingPlan

    def measure(self, part: Part) -> Table:
        """Measures a part."""
        label, rounds = f"{part}, {self.name}", self.plan.rounds
        match part:
            case "modes":
                return _compared("engines x threads", self._modes(label), ALL_AT_ONCE, ALONE)
            case "prefill":
                found = in_turns(self.plan.budgets, rounds, label, self._prefill)
                return _compared("budget, tokens", found, ALL_AT_ONCE)
            case "head-of-line":
                found = in_turns((0, *self.plan.neighbors), rounds, label, self._head_of_line)
                rows = ("short request, median, ms", "short request, p99, ms")
                return _compared("long requests in each engine", found, *rows)
            case "work-conservation":
                return Table("all sentences at once", in_turns(SEARCHES, rounds, label, self._conservation))

    def _engines(self, budget: int | None = None) -> CountedEngines:
        """Starts an engine per CPU; the default budget is that of the server."""
        slots = self.plan.slots
        return CountedEngines(self.sessions, engines=available_cpus(), slots=slots, prefill_token_budget=budget)

    def _made_up(self, source_tokens: int, target_tokens: int) -> SequenceSpec:
        """Returns a source of `source_tokens`, to be translated to exactly `target_tokens`."""
        words = [token for sentence in self.sentences for token in sentence.source_ids[:-1]]
        body = (words * source_tokens)[: source_tokens - 1]
        return SequenceSpec((*body, self.sessions.manifest.eos_id), search_options(target_tokens, target_tokens))

    def _modes(self, label: str) -> Columns:
        """Returns the figures of the modes throughput and latency."""
        plan, cpus, file = self.plan, available_cpus(), self.folder.with_suffix(".json")
        write_sentences(file, self.sentences)
        # The scheduler forms its own batches and ignores the batching.
        task = {"sentences": str(file), "beam_size": 1, "batching": "1:examples"}
        tasks = {"alone": {**task, "alone": plan.alone}, "together": task}
        launches = []
        for mode, engines, threads in (("throughput", cpus, 1), ("latency", 1, cpus)):
            options = {"folder": str(self.folder), "copies": engines, "threads": threads, "slots": plan.slots}
            launches.append(Launch(f"{mode}: {engines} x {threads}", LOADERS["dragoman"], options, tasks))
        alone = min(plan.alone, len(self.sentences))
        return {
            name: [
                {
                    ALL_AT_ONCE: each.turns["together"].tokens_per_second,
                    ALONE: 1e3 * each.turns["alone"].seconds / alone,
                }
                for each in rounds
            ]
            for name, rounds in play(launches, plan.rounds, label).items()
        }

    def _prefill(self, budget: int) -> Figures:
        """Measures how long running rows stall and a burst waits, and the throughput."""
        bursts = list(self._bursts(budget))
        with closing(self._engines(budget)) as engines:
            started = time.perf_counter()
            ended = engines.translate(specs_of(self.sentences, 1))
            took = time.perf_counter() - started
        return {
            **{name: statistics.median(each[name] for each in bursts) for name in bursts[0]},
            "longest stall of all bursts, ms": max(each["longest stall, ms"] for each in bursts),
            OCCUPANCY: 100 * occupancy(engines.steps, engines.slots),
            ALL_AT_ONCE: sum(len(sequence.best.target_ids) for sequence in ended) / took,
        }

    def _bursts(self, budget: int) -> Iterator[Figures]:
        """Yields the figures of each burst for the free half of an engine's rows, stepped in this thread.

        A stall is the time between two tokens of a row: between the ends of two successive decoder runs.
        """
        engine, half = WatchedEngine(self.sessions, self.plan.slots, budget), self.plan.slots // 2
        longest = self.sessions.manifest.max_target_tokens
        sources = cycle(sentence.source_ids for sentence in self.sentences)
        engine.occupy(sources, half, longest)
        ended_ns = 0

        def step_ms() -> float:
            nonlocal ended_ns
            before_ns = ended_ns
            engine.stopwatch.spans.clear()
            engine.step()
            (ended_ns,) = (span.ended_ns for span in engine.stopwatch.spans if span.name == "decoder")
            return (ended_ns - before_ns) / 1e6

        for _ in range(longest):
            step_ms()
        options = search_options(BURST_TOKENS, BURST_TOKENS)
        for _ in range(self.plan.bursts):
            calm = [step_ms() for _ in range(CALM_STEPS)]
            started = time.perf_counter()
            joining = [DecodingSequence(next(sources), options, None, raise_error) for _ in range(half)]
            engine.scheduler.submit(joining)
            stalls = [step_ms()]
            while any(sequence.state is SequenceState.WAITING for sequence in joining):
                stalls.append(step_ms())
            took = time.perf_counter() - started
            while any(sequence.state is not SequenceState.FINISHED for sequence in joining):
                step_ms()
            yield {
                "calm step, ms": statistics.median(calm),
                "longest stall, ms": max(stalls),
                "burst has its first tokens after, ms": 1e3 * took,
                "steps in which it joins": len(stalls),
            }

    def _head_of_line(self, neighbors: int) -> Figures:
        """Measures sequential short requests next to so many long ones per engine, from submission to answer."""
        manifest, count, short_tokens = self.sessions.manifest, available_cpus() * neighbors, self.plan.short_tokens
        short = self._made_up(short_tokens, short_tokens)
        long = self._made_up(manifest.max_source_tokens, manifest.max_target_tokens)
        long_ms: list[float] = []
        stopping = threading.Event()
        with closing(self._engines()) as engines:

            def renew(ended: DecodingSequence) -> None:
                if not stopping.is_set() and ended.error is None:
                    if ended.options == long.options:
                        long_ms.append(_latency_ms(ended))
                    engines.submit([long], renew)

            # The first ones have different lengths, so that later ones do not start and end together.
            for number in range(count):
                target_tokens = 1 + number * long.options.max_target_tokens // count
                engines.submit([long._replace(options=search_options(target_tokens, target_tokens))], renew)
            warm_up = self.plan.short_requests // 10
            requests = range(warm_up + self.plan.short_requests)
            short_ms = [_latency_ms(*engines.translate([short])) for _ in requests][warm_up:]
            stopping.set()
        median, p99 = np.percentile(short_ms, (50, 99)).tolist()
        figures = {"short request, median, ms": median, "short request, p99, ms": p99}
        return {**figures, "long request, ms": statistics.median(long_ms)} if long_ms else figures

    def _conservation(self, search: str) -> Figures:
        """Translates all sentences; the time between decoder runs is without other runs of ONNX Runtime."""
        with closing(self._engines()) as engines:
            engines.translate(specs_of(self.sentences, SEARCHES[search]))
        gaps = [gap for stopwatch in engines.stopwatches for gap in gaps_us(stopwatch.spans)]
        median, p99 = np.percentile(gaps, (50, 99)).tolist()
        taken, runs = 100 * occupancy(engines.steps, engines.slots), "between decoder runs, us"
        return {OCCUPANCY: taken, f"{runs}: median": median, f"{runs}: p99": p99}


def _compared(name: str, columns: Columns, *rows: str) -> Table:
    """Returns a table with the ratios of some rows to those of the first column."""
    return Table(name, columns, next(iter(columns)), rows, divide_by_base=True)


def _latency_ms(sequence: DecodingSequence) -> float:
    return 1e3 * (sequence.finished_seconds - sequence.submitted_seconds)
