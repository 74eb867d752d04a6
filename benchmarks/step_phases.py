"""What the phases of a step take, and how long a decoder waits for its next run, from the spans of a stopwatch.

Called by `benchmarks.step_profile` and `benchmarks.systems.live_engines`; knows the names of phases, not what
they do.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

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
)
from benchmarks.systems.stopwatch import Span

# In the order of a step; what is left of it comes last.
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
    """Some times, in microseconds."""

    median: float
    p99: float

    @classmethod
    def of(cls, times_us: Sequence[float] | NDArray[np.float64]) -> Self:
        """Returns those of some times, at least one."""
        median, p99 = np.percentile(times_us, (50, 99)).tolist()
        return cls(median, p99)


@dataclass(frozen=True, slots=True)
class Phase:
    """What one phase takes.

    Attributes:
        name: of the phase.
        occurrence: the share of steps that have it.
        times: in those steps.
        share: of the time of all steps.
    """

    name: str
    occurrence: float
    times: Quantiles
    share: float


@dataclass(frozen=True, slots=True)
class StepTimes:
    """What steps take.

    Attributes:
        steps: how many were measured.
        whole: a step.
        phases: those that occurred, in the order of a step.
        gaps: from one decoder run to the next, without other runs of ONNX Runtime.
    """

    steps: int
    whole: Quantiles
    phases: list[Phase]
    gaps: Quantiles

    @classmethod
    def of(cls, spans: Sequence[Span]) -> Self:
        """Sums up the spans of whole steps, at least two."""
        steps = [span for span in spans if span.name == STEP]
        phases = _phases(spans)
        return cls(
            len(steps),
            Quantiles.of([(span.ended_ns - span.started_ns) / 1e3 for span in steps]),
            [phases[name] for name in PHASES if name in phases],
            Quantiles.of(gaps_us(spans)),
        )


def gaps_us(spans: Iterable[Span]) -> list[float]:
    """Returns the time between each two decoder runs that follow each other, other runs of ONNX Runtime left out."""
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
    times_us: defaultdict[str, list[float]] = defaultdict(list)  # by phase, of each step that has it
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
