"""All that a call of `dragoman load` found, as one JSON document: every report is made of it, and can be made again.

Knows results and no format but JSON.
"""

from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from loadtest.durations import Percentiles
from loadtest.results import RunResult


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """What became of one offered rate.

    Attributes:
        offered_per_second: requests that were to be sent.
        requests_per_second: that were answered.
        goodput_per_second: that were answered soon enough.
        latency_seconds: of the answered ones; None: there were none.
        failed_share: of what was sent.
        void: why the point proves nothing.
    """

    offered_per_second: float
    requests_per_second: float
    goodput_per_second: float
    latency_seconds: Percentiles | None
    failed_share: float
    void: str | None


@dataclass(frozen=True, slots=True)
class CapacityResult:
    """The highest rate that meets an objective, and what becomes of rates around it.

    Attributes:
        objective: in words.
        bound_seconds: of the latency.
        capacity_per_second: the highest rate that met it; None: none did.
        trials: every rate that was tried, in the order of the search.
        curve: rates from a tenth of the capacity to twice as much.
        void: why it is the generator's capacity rather than the server's, if it is.
    """

    objective: str
    bound_seconds: float
    capacity_per_second: float | None
    trials: list[CurvePoint]
    curve: list[CurvePoint]
    void: str | None = None


@dataclass(frozen=True, slots=True)
class LoadDocument:
    """All that a call of a command found.

    Attributes:
        command: that was called.
        machine: on which it ran.
        versions: of what generated the load.
        date: when, in UTC.
        settings: every option.
        sentences: what was translated: how many, and their words.
        runs: in their order.
        capacity: if it was searched for.
        void: whether any run is void.
    """

    command: str
    machine: str
    versions: str
    date: str
    settings: dict[str, object]
    sentences: dict[str, float]
    runs: list[RunResult]
    capacity: CapacityResult | None
    void: bool


_DOCUMENTS = TypeAdapter(LoadDocument)


def to_json(document: LoadDocument) -> bytes:
    """Returns a document as JSON."""
    return _DOCUMENTS.dump_json(document, indent=1)


def to_line(document: LoadDocument) -> str:
    """Returns what a document says in one line of JSON: all but what only pictures need."""
    left_out = {"points", "curve", "server"}
    return _DOCUMENTS.dump_json(document, exclude={"runs": {"__all__": left_out}}).decode()


def from_json(content: bytes) -> LoadDocument:
    """Returns a document that `to_json` wrote.

    Raises:
        ValueError: if it is none.
    """
    try:
        return _DOCUMENTS.validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"no report of `dragoman load`: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
