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
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal, TypeVar

import numpy as np
from pydantic import Field

from benchmarks.harness.plan import Question
from benchmarks.harness.process import Launch
from benchmarks.harness.report import Figures, Report, Table, cells_of
from benchmarks.harness.rounds import Player, play, take_turns
from benchmarks.systems.compared_model import ModelsPlan
from benchmarks.systems.engine import DECODER, CountedEngines, WatchedEngine, gaps_us, raise_error, search_options
from benchmarks.systems.translating import SEARCHES, SourceSentence, write_sentences
from serve.bundle.bundle import Bundle
from serve.bundle.manifest import Precision
from serve.errors import ServiceError
from serve.runtime.cpu import Sessions
from serve.scheduler.sequence import DecodingSequence, SequenceSpec, SequenceState
from serve.settings import ServeSettings
from serve.system import available_cpus

Part = Literal["modes", "prefill", "head-of-line", "work-conservation"]
# Steps between two bursts.
CALM_STEPS = 8
# Target tokens of a burst's sequences.
BURST_TOKENS = 8
OCCUPANCY = "slots taken while something waits, %"


class SchedulingPlan(ModelsPlan):
    """The parameters of this benchmark."""

    parts: tuple[Part, ...] = Field(
        ("modes", "prefill", "head-of-line", "work-conservation"), min_length=1, description="parts to measure"
    )
    precision: Precision = Field("int8", description="precision of the models")
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
    """A model: its bundle, its sentences, and the parameters of the benchmark."""

    name: str
    folder: Path
    sentences: list[SourceSentence]
    plan: SchedulingPlan

    def sessions(self) -> Sessions:
        """Opens the bundle, with one thread."""
        return Sessions.load(Bundle.open(self.folder), threads=1)

    def specs(self, beam_size: int = 1) -> list[SequenceSpec]:
        """Returns all sentences with their search options."""
        return [SequenceSpec(each.source_ids, search_options(*each.limits, beam_size)) for each in self.sentences]

    def made_up(self, source_tokens: int, target_tokens: int, eos_id: int) -> SequenceSpec:
        """Returns a source of `source_tokens`, to be translated to exactly `target_tokens`."""
        words = [token for sentence in self.sentences for token in sentence.source_ids[:-1]]
        body = (words * source_tokens)[: source_tokens - 1]
        return SequenceSpec((*body, eos_id), search_options(target_tokens, target_tokens))

    @contextmanager
    def engines(self, sessions: Sessions, budget: int | None = None) -> Iterator[CountedEngines]:
        """Runs an engine per CPU until the block ends; the default budget is that of the server."""
        budget = budget or ServeSettings().prefill_token_budget
        engines = CountedEngines(sessions, engines=available_cpus(), slots=self.plan.slots, prefill_token_budget=budget)
        try:
            yield engines
        finally:
            engines.close()


Variant = TypeVar("Variant", bound=Hashable)


def in_turns(
    model: ScheduledModel, part: Part, variants: Sequence[Variant], measure: Callable[[Variant], Figures]
) -> dict[Variant, list[Figures]]:
    """Measures each variant in every round."""
    found: dict[Variant, list[Figures]] = defaultdict(list)
    for variant in take_turns(list(dict.fromkeys(variants)), model.plan.rounds, f"{part}, {model.name}"):
        found[variant].append(measure(variant))
    return found


def measure_modes(model: ScheduledModel) -> Table:
    """Measures the modes throughput and latency.

    Raises:
        SystemFailedError: if one fails.
    """
    plan, cpus = model.plan, available_cpus()
    file = model.folder.parent / "sentences.json"
    write_sentences(file, model.sentences)
    # The scheduler forms its own batches and ignores the batching.
    task = {"sentences": str(file), "beam_size": 1, "batching": "1:examples"}
    tasks = {"alone": {**task, "alone": plan.alone}, "together": task}
    players = []
    for mode, engines, threads in (("throughput", cpus, 1), ("latency", 1, cpus)):
        options = {"folder": str(model.folder), "copies": engines, "threads": threads, "slots": plan.slots}
        launch = Launch(f"{mode}: {engines} x {threads}", "benchmarks.systems.engine:load_engines", options)
        players.append(Player(launch, tasks))
    alone = min(plan.alone, len(model.sentences))
    figures = {
        name: [
            {
                "all at once, tokens/s": each.turns["together"].tokens_per_second,
                "one sentence at a time, ms": 1e3 * each.turns["alone"].seconds / alone,
            }
            for each in rounds
        ]
        for name, rounds in play(players, plan.rounds, f"modes, {model.name}").items()
    }
    cells = cells_of(figures, compared=("all at once, tokens/s", "one sentence at a time, ms"))
    return Table("engines x threads", cells, next(iter(figures)), divide_by_base=True)


def measure_prefill(model: ScheduledModel) -> Table:
    """Measures how long running rows stall and a burst waits, and the throughput, for each budget.

    Raises:
        ServiceError: if an engine fails.
    """
    sessions = model.sessions()

    def measure(budget: int) -> Figures:
        engine = BurstyEngine(sessions, model, budget)
        bursts = [engine.burst() for _ in range(model.plan.bursts)]
        with model.engines(sessions, budget) as engines:
            started = time.perf_counter()
            ended = engines.translate(model.specs())
            took = time.perf_counter() - started
        return {
            **{name: statistics.median(each[name] for each in bursts) for name in bursts[0]},
            "longest stall of all bursts, ms": max(each["longest stall, ms"] for each in bursts),
            OCCUPANCY: 100 * engines.occupancy,
            "all at once, tokens/s": sum(len(sequence.best.target_ids) for sequence in ended) / took,
        }

    found = in_turns(model, "prefill", model.plan.budgets, measure)
    figures = {str(budget): rounds for budget, rounds in found.items()}
    cells = cells_of(figures, compared=("all at once, tokens/s",))
    return Table("budget, tokens", cells, next(iter(figures)), divide_by_base=True)


class BurstyEngine:
    """An engine, stepped in the calling thread, with half of its rows always occupied."""

    def __init__(self, sessions: Sessions, model: ScheduledModel, budget: int) -> None:
        self._engine = WatchedEngine(sessions, model.plan.slots, budget)
        self._sources = cycle(sentence.source_ids for sentence in model.sentences)
        self._longest = sessions.manifest.max_target_tokens
        self._half = model.plan.slots // 2
        self._ended_ns = 0
        for number in range(self._half):  # their ends are spread evenly over the steps
            self._submit_long(1 + number * self._longest // self._half)
        for _ in range(self._longest):
            self._step_ms()

    def burst(self) -> Figures:
        """Lets a burst fill the other half of the rows, and finish. A stall is the time between two tokens of a row.

        Raises:
            ServiceError: if the engine fails.
        """
        calm = [self._step_ms() for _ in range(CALM_STEPS)]
        started = time.perf_counter()
        options = search_options(BURST_TOKENS, BURST_TOKENS)
        joining = [DecodingSequence(next(self._sources), options, None, raise_error) for _ in range(self._half)]
        self._engine.scheduler.submit(joining)
        stalls = [self._step_ms()]
        while any(sequence.state is SequenceState.WAITING for sequence in joining):
            stalls.append(self._step_ms())
        took = time.perf_counter() - started
        while any(sequence.state is not SequenceState.FINISHED for sequence in joining):
            self._step_ms()
        return {
            "calm step, ms": statistics.median(calm),
            "longest stall, ms": max(stalls),
            "burst has its first tokens after, ms": 1e3 * took,
            "steps in which it joins": len(stalls),
        }

    def _submit_long(self, target_tokens: int) -> None:
        def on_finish(sequence: DecodingSequence) -> None:
            raise_error(sequence)
            self._submit_long(self._longest)

        options = search_options(target_tokens, target_tokens)
        self._engine.scheduler.submit([DecodingSequence(next(self._sources), options, None, on_finish)])

    def _step_ms(self) -> float:
        """Makes a step; returns the time between the ends of two successive decoder runs."""
        spans = self._engine.stopwatch.spans
        spans.clear()
        self._engine.step()
        (ended_ns,) = (span.ended_ns for span in spans if span.name == DECODER)
        took_ms = (ended_ns - self._ended_ns) / 1e6
        self._ended_ns = ended_ns
        return took_ms


def measure_head_of_line(model: ScheduledModel) -> Table:
    """Measures short requests alone and with each number of long ones, from submission to answer.

    Raises:
        ServiceError: if an engine fails.
    """
    sessions = model.sessions()

    def measure(neighbors: int) -> Figures:
        short, long = _latencies_ms(model, sessions, available_cpus() * neighbors)
        median, p99 = np.percentile(short, (50, 99)).tolist()
        figures = {"short request, median, ms": median, "short request, p99, ms": p99}
        return {**figures, "long request, ms": statistics.median(long)} if long else figures

    found = in_turns(model, "head-of-line", (0, *model.plan.neighbors), measure)
    figures = {str(neighbors): rounds for neighbors, rounds in found.items()}
    cells = cells_of(figures, compared=("short request, median, ms", "short request, p99, ms"))
    return Table("long requests in each engine", cells, "0", divide_by_base=True)


def _latencies_ms(model: ScheduledModel, sessions: Sessions, count: int) -> tuple[list[float], list[float]]:
    """Returns the latencies of sequential short requests, and of `count` concurrent long ones, in milliseconds."""
    plan, manifest = model.plan, sessions.manifest
    short = model.made_up(plan.short_tokens, plan.short_tokens, manifest.eos_id)
    long = model.made_up(manifest.max_source_tokens, manifest.max_target_tokens, manifest.eos_id)
    long_latencies: list[float] = []
    stopping = threading.Event()
    with model.engines(sessions) as engines:

        def renew(ended: DecodingSequence) -> None:
            if not stopping.is_set() and ended.error is None:
                if ended.options == long.options:
                    long_latencies.append(_latency_ms(ended))
                engines.submit([long], renew)

        # The first ones have different lengths, so that later ones do not start and end together.
        for number in range(count):
            target_tokens = 1 + number * long.options.max_target_tokens // count
            engines.submit([long._replace(options=search_options(target_tokens, target_tokens))], renew)
        warm_up = plan.short_requests // 10
        latencies = [_latency_ms(*engines.translate([short])) for _ in range(warm_up + plan.short_requests)]
        stopping.set()
    return latencies[warm_up:], long_latencies


def _latency_ms(sequence: DecodingSequence) -> float:
    return 1e3 * (sequence.finished_seconds - sequence.submitted_seconds)


def measure_conservation(model: ScheduledModel) -> Table:
    """Translates all sentences with each search; the time between decoder runs is without other runs of ONNX Runtime.

    Raises:
        ServiceError: if an engine fails.
    """
    sessions = model.sessions()

    def measure(search: str) -> Figures:
        with model.engines(sessions) as engines:
            engines.translate(model.specs(SEARCHES[search]))
        gaps = [gap for runtime in engines.runtimes for gap in gaps_us(runtime.stopwatch.spans)]
        median, p99 = np.percentile(gaps, (50, 99)).tolist()
        runs = "between decoder runs, us"
        return {OCCUPANCY: 100 * engines.occupancy, f"{runs}: median": median, f"{runs}: p99": p99}

    found = in_turns(model, "work-conservation", list(SEARCHES), measure)
    return Table("all sentences at once", cells_of(found))


PARTS: dict[Part, Callable[[ScheduledModel], Table]] = {
    "modes": measure_modes,
    "prefill": measure_prefill,
    "head-of-line": measure_head_of_line,
    "work-conservation": measure_conservation,
}


def measure(plan: SchedulingPlan) -> Report:
    """Measures every part of every model; the variants of a part take turns."""
    tables = []
    with TemporaryDirectory(prefix="dragoman-") as workshop:
        models = []
        for model, sentences in plan.models():
            folder = Path(workshop) / model.name / "bundle"
            folder.parent.mkdir()
            model.write_bundle(folder, "cpu", plan.precision)
            scheduled = ScheduledModel(model.name, folder, sentences, plan)
            models.append((scheduled, f"{model.describe()}; {len(sentences):,} sentences"))
        for part in plan.parts:
            for scheduled, description in models:
                table = PARTS[part](scheduled)
                tables.append(replace(table, text=f"{part}, **{scheduled.name}**: {description}."))
    return Report(tables, f"threads of all engines: {available_cpus()}")


QUESTION = Question(SchedulingPlan, measure, ("onnxruntime", "numpy"), (ServiceError,))
