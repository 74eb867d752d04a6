"""How the engines schedule concurrent requests, in three parts.

Prefill: the cost and the benefit of a token budget, the maximum of source tokens that start together. Half of the rows
run when a burst of sentences arrives for the other half. Head of line: the latency of a short request while others of
maximum length run; a server that batches whole requests answers the short one only after the long ones. Work
conservation: the share of rows that are taken while sequences wait; all sentences arrive at once.
"""

import statistics
import time
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
from pydantic import Field

from benchmarks.harness.plan import Positive
from benchmarks.harness.report import Columns, Figures, Report, Table
from benchmarks.harness.rounds import measure_rounds
from benchmarks.systems.compared_model import ModelsPlan
from benchmarks.systems.engine import search_options, specs_of
from benchmarks.systems.native_engine import LiveNativeEngines, settings_of
from benchmarks.systems.translating import SEARCHES, SourceSentence
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.manifest import Precision
from dragoman.serve.engine.native.model import open_model
from dragoman.serve.host.system import available_cpus
from dragoman.serve.native.loop import LoopModel
from dragoman.serve.scheduler.sequence import DecodingSequence, SequenceSpec

Part = Literal["prefill", "head-of-line", "work-conservation"]
# Target tokens of a burst's sequences.
BURST_TOKENS = 8
ALL_AT_ONCE = "all at once, tokens/s"
OCCUPANCY = "rows taken while something waits, %"


class SchedulingPlan(ModelsPlan):
    """The parameters of this benchmark."""

    libraries = ("onnxruntime", "numpy")

    parts: tuple[Part, ...] = Field(
        ("prefill", "head-of-line", "work-conservation"), min_length=1, description="parts to measure"
    )
    precision: Precision = Field("int8", description="precision of the models")
    slots: int = Field(32, ge=4, description="rows of each engine")
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
                text = f"**{model.name}**: {model.describe()}; {len(sentences):,} sentences."
                bundle = Bundle.open(folder)
                models.append((ScheduledModel(bundle, open_model(bundle, threads=1), sentences, self), text))
            for part in self.parts:
                tables += [replace(model.measure(part), text=f"{part}, {text}") for model, text in models]
        return Report(tables, f"threads of all engines: {available_cpus()}")


@dataclass(frozen=True, slots=True)
class ScheduledModel:
    """A bundle, opened with one thread, its sentences, and the parameters of the benchmark."""

    bundle: Bundle
    model: LoopModel
    sentences: list[SourceSentence]
    plan: SchedulingPlan

    def measure(self, part: Part) -> Table:
        """Measures a part."""
        label, rounds = f"{part}, {self.bundle.manifest.name}", self.plan.rounds
        match part:
            case "prefill":
                found = measure_rounds(self.plan.budgets, rounds, label, self._prefill)
                return _compared("budget, tokens", found, ALL_AT_ONCE)
            case "head-of-line":
                found = measure_rounds((0, *self.plan.neighbors), rounds, label, self._head_of_line)
                rows = ("short request, median, ms", "short request, p99, ms")
                return _compared("long requests in each engine", found, *rows)
            case "work-conservation":
                return Table("all sentences at once", measure_rounds(SEARCHES, rounds, label, self._conservation))

    def _engines(self, budget: int | None = None) -> LiveNativeEngines:
        """Starts an engine per CPU; the default budget is that of the server."""
        sizes = {"engines": available_cpus(), "slots": self.plan.slots}
        settings = settings_of(self.bundle, **sizes, prefill_token_budget=budget)
        return LiveNativeEngines(self.bundle, settings, self.model)

    def _made_up(self, source_tokens: int, target_tokens: int) -> SequenceSpec:
        """Returns a source of `source_tokens`, to be translated to exactly `target_tokens`."""
        words = [token for sentence in self.sentences for token in sentence.source_ids[:-1]]
        body = (words * source_tokens)[: source_tokens - 1]
        return SequenceSpec((*body, self.bundle.manifest.eos_id), search_options(target_tokens, target_tokens))

    def _prefill(self, budget: int) -> Figures:
        """Measures how long a burst for half of the rows takes while the other half runs, and the throughput."""
        manifest, half = self.bundle.manifest, available_cpus() * self.plan.slots // 2
        long = self._made_up(manifest.max_source_tokens // 2, manifest.max_target_tokens)
        options = search_options(BURST_TOKENS, BURST_TOKENS)
        sources = cycle(sentence.source_ids for sentence in self.sentences)
        with closing(self._engines(budget)) as engines:
            started = time.perf_counter()
            ended = engines.translate(specs_of(self.sentences, 1))
            took = time.perf_counter() - started
            engines.occupy(cycle([long]), half)
            bursts = [
                engines.translate([SequenceSpec(next(sources), options) for _ in range(half)])
                for _ in range(self.plan.bursts)
            ]
        first = [1e3 * max(item.first_token_seconds - item.submitted_seconds for item in burst) for burst in bursts]
        return {
            "burst has its first tokens after, ms": statistics.median(first),
            "burst has its last tokens after, ms": statistics.median(max(map(_latency_ms, burst)) for burst in bursts),
            ALL_AT_ONCE: sum(len(sequence.best.target_ids) for sequence in ended) / took,
        }

    def _head_of_line(self, neighbors: int) -> Figures:
        """Measures sequential short requests next to `neighbors` long ones per engine, from submission to answer."""
        manifest, short_tokens = self.bundle.manifest, self.plan.short_tokens
        short = self._made_up(short_tokens, short_tokens)
        long = self._made_up(manifest.max_source_tokens, manifest.max_target_tokens)
        long_ms: list[float] = []

        def note(ended: DecodingSequence) -> None:
            if ended.options == long.options:
                long_ms.append(_latency_ms(ended))

        with closing(self._engines()) as engines:
            engines.occupy(cycle([long]), available_cpus() * neighbors, note)
            warm_up = self.plan.short_requests // 10
            requests = range(warm_up + self.plan.short_requests)
            short_ms = [_latency_ms(*engines.translate([short])) for _ in requests][warm_up:]
        median, p99 = np.percentile(short_ms, (50, 99)).tolist()
        figures = {"short request, median, ms": median, "short request, p99, ms": p99}
        return {**figures, "long request, ms": statistics.median(long_ms)} if long_ms else figures

    def _conservation(self, search: str) -> Figures:
        """Counts the rows of the decoder steps until the queue is empty."""
        beam_size = SEARCHES[search]
        with closing(self._engines()) as engines:
            engines.submit(specs_of(self.sentences, beam_size), lambda _: None)
            engines.wait(lambda: not engines.waiting)
            phases = engines.phases
        return {OCCUPANCY: 100 * phases.rows / (max(1, phases.steps) * self.plan.slots)}


def _compared(name: str, columns: Columns, *rows: str) -> Table:
    """Returns a table with the ratios of some rows to those of the first column."""
    return Table(name, columns, next(iter(columns)), rows, divide_by_base=True)


def _latency_ms(sequence: DecodingSequence) -> float:
    return 1e3 * (sequence.finished_seconds - sequence.submitted_seconds)
