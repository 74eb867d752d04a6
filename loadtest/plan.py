"""A plan: every request with its send time, and the time slices of the reports.

The plan is drawn before the first request is sent, and depends on nothing but the scenario and the seed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Self

import numpy as np

from loadtest.scenario import (
    AFTER_A_TRACE_SECONDS,
    AnyPhase,
    Arrivals,
    Languages,
    LoadRequest,
    PoissonPhase,
    ReplayPhase,
    RequestKind,
    Scenario,
    TracedRequest,
)

WARM_UP = "warm-up"
# Largest number of slices per phase, and their smallest length.
SLICES_OF_A_PHASE = 120
SHORTEST_SLICE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Slice:
    """A time slice of a run; requests belong to it by their intended time. `window` counts repetitions from 0."""

    phase: str
    window: int
    begin_seconds: float
    end_seconds: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Requests and their send times.

    Attributes:
        arrivals: seconds from the start of the run, ascending, shape (requests,).
        slices: contiguous, from 0.
    """

    arrivals: Arrivals
    requests: Sequence[LoadRequest]
    slices: tuple[Slice, ...]

    @property
    def duration_seconds(self) -> float:
        """End of the last slice."""
        return self.slices[-1].end_seconds

    def part(self, number: int, of: int) -> Self:
        """Returns every `of`-th request from the `number`-th on: the share of one process."""
        return type(self)(self.arrivals[number::of], self.requests[number::of], self.slices)

    def slice_numbers(self) -> list[int]:
        """Returns the slice number of every request."""
        ends = [each.end_seconds for each in self.slices]
        numbers: list[int] = np.minimum(np.searchsorted(ends, self.arrivals, side="right"), len(ends) - 1).tolist()
        return numbers


def draw_plan(scenario: Scenario, sentences: Sequence[str], seed: int, windows: int = 1) -> Plan:
    """Draws the plan of a scenario, with each phase repeated `windows` times; the same seed gives the same plan.

    Raises:
        ScenarioError: if a recorded trace cannot be read.
    """
    parts = list(_draw_parts(scenario, sentences, windows, np.random.default_rng(seed)))
    return Plan(
        np.concatenate([part.arrivals for part in parts]),
        list(chain.from_iterable(part.requests for part in parts)),
        tuple(chain.from_iterable(part.slices for part in parts)),
    )


def _draw_parts(
    scenario: Scenario, sentences: Sequence[str], windows: int, random: np.random.Generator
) -> Iterator[Plan]:
    """Yields the plan of the warm-up and of every window; each starts where the previous one ends."""
    begin_seconds = 0.0
    phases: list[tuple[AnyPhase, int]] = [(phase, window) for phase in scenario.phases for window in range(windows)]
    if scenario.warm_up_seconds:
        rate = _first_rate(scenario.phases[0])
        phases.insert(0, (PoissonPhase(name=WARM_UP, rate=rate, duration_seconds=scenario.warm_up_seconds), 0))
    for phase, window in phases:
        # Of its own, so that the send times do not depend on the kinds of requests.
        arrivals = phase.draw(np.random.default_rng(random.integers(1 << 62)))
        traced: Sequence[TracedRequest | None] = [None] * len(arrivals)
        if isinstance(phase, ReplayPhase):
            traced = phase.read()
            duration_seconds = float(arrivals[-1]) + AFTER_A_TRACE_SECONDS
        else:
            duration_seconds = phase.duration_seconds
        slices = _cut(phase.name, window, begin_seconds, begin_seconds + duration_seconds)
        yield Plan(arrivals + begin_seconds, _draw_requests(scenario.requests, sentences, traced, random), slices)
        begin_seconds += duration_seconds


def _first_rate(phase: AnyPhase) -> float:
    """Returns the approximate request rate at the start of a phase."""
    if isinstance(phase, ReplayPhase):
        arrivals = phase.draw(np.random.default_rng())
        return len(arrivals) / (float(arrivals[-1]) + AFTER_A_TRACE_SECONDS)
    return phase.rate


def _draw_requests(
    kinds: Sequence[RequestKind],
    sentences: Sequence[str],
    traced: Sequence[TracedRequest | None],
    random: np.random.Generator,
) -> list[LoadRequest]:
    weights = np.array([kind.weight for kind in kinds])
    chosen = random.choice(len(kinds), len(traced), p=weights / weights.sum()).tolist()
    return [
        _draw_request(kinds[number], sentences, given, random) for number, given in zip(chosen, traced, strict=True)
    ]


def _draw_request(
    kind: RequestKind, sentences: Sequence[str], traced: TracedRequest | None, random: np.random.Generator
) -> LoadRequest:
    cancelled = kind.cancelled_share > random.random()
    options = kind.options if traced is None or traced.options is None else traced.options
    return LoadRequest(
        _draw_texts(kind, sentences, random) if traced is None or traced.text is None else traced.text,
        kind.protocol,
        kind.name,
        Languages(kind.source_language, kind.target_language),
        options.given(),
        kind.timeout_seconds,
        float(random.uniform(0.0, kind.cancelled_within_seconds)) if cancelled else None,
        kind.model,
        kind.fields,
    )


def _draw_texts(kind: RequestKind, sentences: Sequence[str], random: np.random.Generator) -> tuple[str, ...]:
    count = next(iter(kind.texts))
    if len(kind.texts) > 1:
        weights = np.array(list(kind.texts.values()))
        count = int(random.choice(list(kind.texts), p=weights / weights.sum()))
    if kind.text is not None:
        return (kind.text,) * count
    return tuple(sentences[number] for number in random.integers(len(sentences), size=count))


def _cut(phase: str, window: int, begin_seconds: float, end_seconds: float) -> tuple[Slice, ...]:
    duration_seconds = end_seconds - begin_seconds
    count = max(1, min(SLICES_OF_A_PHASE, int(duration_seconds / SHORTEST_SLICE_SECONDS)))
    edges = np.linspace(begin_seconds, end_seconds, count + 1).tolist()
    return tuple(Slice(phase, window, begin, end) for begin, end in pairwise(edges))
