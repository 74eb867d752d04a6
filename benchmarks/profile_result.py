"""What `dragoman profile` found for one number of rows. Knows figures only."""

from dataclasses import dataclass

from benchmarks.profiling import GraphTimes
from benchmarks.step_phases import StepTimes


@dataclass(frozen=True, slots=True)
class ProfileResult:
    """Steps of so many rows.

    Attributes:
        rows: of every step.
        steps: their phases, without the profiler.
        decoder: the nodes of the decoder, with it.
    """

    rows: int
    steps: StepTimes
    decoder: GraphTimes
