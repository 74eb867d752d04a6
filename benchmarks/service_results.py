"""What `dragoman bench service` found, as plain values. Knows no server."""

from dataclasses import dataclass
from typing import Literal

from benchmarks.cpu_times import CpuTimes

Way = Literal["engine", "gRPC", "REST"]
ENGINE: Way = "engine"
Interface = Literal["gRPC", "REST", "TranslateMany"]
INTERFACES: tuple[Interface, ...] = ("gRPC", "REST", "TranslateMany")


@dataclass(frozen=True, slots=True)
class Quartiles:
    """The quartiles of figures, of which the second is their median."""

    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True)
class WayResult:
    """What one client waited for by one way.

    Attributes:
        way: by which it asked.
        milliseconds: for a sentence.
        over_engine_ms: how much longer than the bare engine took for the same sentence; None: it is the bare engine.
        rounds_ms: the median of that, round by round.
    """

    way: Way
    milliseconds: Quartiles
    over_engine_ms: Quartiles | None
    rounds_ms: list[float]


@dataclass(frozen=True, slots=True)
class OverheadResult:
    """What one client waited for, whose sentences were asked by every way in every round."""

    sentences: int
    rounds: int
    ways: list[WayResult]


@dataclass(frozen=True, slots=True)
class BusyTurn:
    """A turn in which many clients kept the server busy by one interface.

    Attributes:
        seconds: length of the measured part of it.
        sentences: that the server answered in it.
        sentences_per_second: the same by time.
        rows_per_step: sequences that a run of the decoder computed, on average; None: none ran.
        cpu: what the server spent in it.
        answered: sentences of the whole turn, warm-up included, as the clients count them.
        served: requests of the whole turn, as the server counts them; each has one sentence.
        failed: requests of the whole turn that were not answered, by outcome.
    """

    seconds: float
    sentences: int
    sentences_per_second: float
    rows_per_step: float | None
    cpu: CpuTimes
    answered: int
    served: int
    failed: dict[str, int]


@dataclass(frozen=True, slots=True)
class BusyResult:
    """A server that many clients kept busy.

    Attributes:
        clients: of the closed loop.
        sentences: that they drew from.
        words: that the longest of these may have.
        turns: round by round, of each interface.
    """

    clients: int
    sentences: int
    words: int
    turns: dict[Interface, list[BusyTurn]]


@dataclass(frozen=True, slots=True)
class ServiceResult:
    """All that was found of a bundle.

    Attributes:
        name: of the bundle.
        direction: from which language into which, as in "en-de".
        precision: of the model.
        engines: of the server that was kept busy.
        overhead: what one client waited for.
        busy: what many clients made the server do.
    """

    name: str
    direction: str
    precision: str
    engines: int
    overhead: OverheadResult
    busy: BusyResult
