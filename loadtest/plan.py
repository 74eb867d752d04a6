"""A plan: every request with its send time, and the time slices of the reports.

The plan is drawn before the first request is sent, and depends on nothing but the scenario and the seed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np

from loadtest.scenario import (
    AnyPhase,
    Arrivals,
    Languages,
    LoadRequest,
    ReplayPhase,
    RequestKind,
    Scenario,
    TimedPhase,
    TracedRequest,
    poisson_arrivals,
)

WARM_UP = "warm-up"
# Largest number of slices per phase, and their smallest length.
SLICES_OF_A_PHASE = 120
SHORTEST_SLICE_SECONDS = 0.5
# A trace ends so long after its last recorded request.
AFTER_A_TRACE_SECONDS = 1.0


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
    draw = _Draw(scenario, sentences, np.random.default_rng(seed))
    parts = list(draw.parts(windows))
    arrivals = np.concatenate([part.arrivals for part in parts])
    return Plan(
        arrivals, [request for part in parts for request in part.requests], sum((part.slices for part in parts), ())
    )


class _Draw:
    """Draws the plans of the phases in order."""

    def __init__(self, scenario: Scenario, sentences: Sequence[str], random: np.random.Generator) -> None:
        self._scenario = scenario
        self._sentences = sentences
        self._random = random

    def parts(self, windows: int) -> Iterator[Plan]:
        """Yields the plan of the warm-up and of every window; each starts where the previous one ends."""
        begin_seconds = warm_up_seconds = self._scenario.warm_up_seconds
        if warm_up_seconds:
            rate = _mean_rate(self._scenario.phases[0])
            arrivals = poisson_arrivals(rate, warm_up_seconds, self._seed())
            slices = _cut(WARM_UP, 0, 0.0, warm_up_seconds)
            yield Plan(arrivals, self._requests([None] * len(arrivals)), slices)
        for phase in self._scenario.phases:
            for window in range(windows):
                part = self._phase(phase, window, begin_seconds)
                begin_seconds = part.duration_seconds
                yield part

    def _phase(self, phase: AnyPhase, window: int, begin_seconds: float) -> Plan:
        if isinstance(phase, ReplayPhase):
            traced: Sequence[TracedRequest | None] = phase.read()
            arrivals = phase.draw(0.0, 0)
            duration_seconds = float(arrivals[-1]) + AFTER_A_TRACE_SECONDS
        else:
            duration_seconds = phase.duration_seconds
            arrivals = phase.draw(duration_seconds, self._seed())
            traced = [None] * len(arrivals)
        slices = _cut(phase.name, window, begin_seconds, begin_seconds + duration_seconds)
        return Plan(arrivals + begin_seconds, self._requests(traced), slices)

    def _seed(self) -> int:
        return int(self._random.integers(1 << 62))

    def _requests(self, traced: Sequence[TracedRequest | None]) -> list[LoadRequest]:
        kinds = self._scenario.requests
        weights = np.array([kind.weight for kind in kinds])
        chosen = self._random.choice(len(kinds), len(traced), p=weights / weights.sum()).tolist()
        return [self._request(kinds[number], given) for number, given in zip(chosen, traced, strict=True)]

    def _request(self, kind: RequestKind, traced: TracedRequest | None) -> LoadRequest:
        cancelled = kind.cancelled_share > self._random.random()
        options = kind.options if traced is None or traced.options is None else traced.options
        return LoadRequest(
            self._texts(kind) if traced is None or traced.text is None else traced.text,
            kind.protocol,
            kind.name,
            Languages(kind.source_language, kind.target_language),
            options.given(),
            kind.timeout_seconds,
            float(self._random.uniform(0.0, kind.cancelled_within_seconds)) if cancelled else None,
        )

    def _texts(self, kind: RequestKind) -> tuple[str, ...]:
        count = next(iter(kind.texts))
        if len(kind.texts) > 1:
            weights = np.array(list(kind.texts.values()))
            count = int(self._random.choice(list(kind.texts), p=weights / weights.sum()))
        if kind.text is not None:
            return (kind.text,) * count
        return tuple(self._sentences[number] for number in self._random.integers(len(self._sentences), size=count))


def _mean_rate(phase: AnyPhase) -> float:
    """Returns the approximate request rate at the start of a phase."""
    if isinstance(phase, TimedPhase):
        return phase.rate
    arrivals = phase.draw(0.0, 0)
    return len(arrivals) / (float(arrivals[-1]) + AFTER_A_TRACE_SECONDS)


def _cut(phase: str, window: int, begin_seconds: float, end_seconds: float) -> tuple[Slice, ...]:
    duration_seconds = end_seconds - begin_seconds
    count = max(1, min(SLICES_OF_A_PHASE, int(duration_seconds / SHORTEST_SLICE_SECONDS)))
    edges = np.linspace(begin_seconds, end_seconds, count + 1).tolist()
    return tuple(Slice(phase, window, begin, end) for begin, end in pairwise(edges))
