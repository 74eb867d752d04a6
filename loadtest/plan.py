"""A plan: every request with its send time, and the phases of the run.

The plan is drawn before the first request is sent, and depends on nothing but the scenario and the seed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple, Self

import numpy as np

from dragoman.loadtest.scenario import AnyPhase, Arrivals, LoadRequest, PoissonPhase, ReplayPhase, RequestKind, Scenario

WARM_UP = "warm-up"


class Part(NamedTuple):
    """A phase of a run; requests belong to it by their intended time."""

    phase: str
    begin_seconds: float
    end_seconds: float


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Requests with ascending send times, in seconds from the start of the run, and contiguous parts from 0."""

    arrivals: Arrivals
    requests: Sequence[LoadRequest]
    parts: tuple[Part, ...]

    @property
    def duration_seconds(self) -> float:
        """End of the last part."""
        return self.parts[-1].end_seconds

    @property
    def measured(self) -> list[Part]:
        """The phases without the warm-up, in order."""
        return [part for part in self.parts if part.phase != WARM_UP]

    def planned(self, begin_seconds: float, end_seconds: float) -> int:
        """Counts the requests of an interval, without its end."""
        first, last = np.searchsorted(self.arrivals, (begin_seconds, end_seconds)).tolist()
        return int(last - first)

    def share(self, number: int, of: int) -> Self:
        """Returns every `of`-th request from the `number`-th on: the share of one process."""
        return type(self)(self.arrivals[number::of], self.requests[number::of], self.parts)


def draw_plan(scenario: Scenario, sentences: Sequence[str], seed: int) -> LoadPlan:
    """Draws the plan of a scenario; the same seed gives the same plan."""
    random = np.random.default_rng(seed)
    phases: list[AnyPhase] = [*scenario.phases]
    if scenario.warm_up_seconds:
        rate, seconds = scenario.phases[0].rate, scenario.warm_up_seconds
        phases.insert(0, PoissonPhase(name=WARM_UP, rate=rate, duration_seconds=seconds))
    arrivals, requests, parts = list[Arrivals](), list[LoadRequest](), list[Part]()
    begin_seconds = 0.0
    for phase in phases:
        # Arrivals have a generator of their own, so that the send times do not depend on the kinds of requests.
        arrivals.append(phase.draw(np.random.default_rng(random.integers(1 << 62))) + begin_seconds)
        requests += _draw_requests(scenario.requests, sentences, phase, len(arrivals[-1]), random)
        parts.append(Part(phase.name, begin_seconds, begin_seconds + phase.duration_seconds))
        begin_seconds = parts[-1].end_seconds
    return LoadPlan(np.concatenate(arrivals), requests, tuple(parts))


def _draw_requests(
    kinds: Sequence[RequestKind], sentences: Sequence[str], phase: AnyPhase, count: int, random: np.random.Generator
) -> Iterator[LoadRequest]:
    weights = np.array([kind.weight for kind in kinds])
    chosen = random.choice(len(kinds), count, p=weights / weights.sum()).tolist()
    traced = phase.recorded if isinstance(phase, ReplayPhase) else repeat(None)
    for kind, given in zip(map(kinds.__getitem__, chosen), traced, strict=False):
        canceled = kind.cancelled_share > random.random()
        yield LoadRequest(
            _draw_texts(kind, sentences, random) if given is None or given.text is None else given.text,
            kind,
            None if given is None else given.options,
            float(random.uniform(0.0, kind.cancelled_within_seconds)) if canceled else None,
        )


def _draw_texts(kind: RequestKind, sentences: Sequence[str], random: np.random.Generator) -> tuple[str, ...]:
    count = next(iter(kind.texts))
    if len(kind.texts) > 1:
        weights = np.array(list(kind.texts.values()))
        count = int(random.choice(list(kind.texts), p=weights / weights.sum()))
    if kind.text is not None:
        return (kind.text,) * count
    return tuple(sentences[number] for number in random.integers(len(sentences), size=count))
