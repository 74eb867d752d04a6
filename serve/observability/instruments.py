"""The Prometheus instruments of a model and of the service, made from `instruments.yaml`."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Info

from dragoman.serve.errors import CancelledError, DeadlineExceededError, DrainingError, InternalError, QueueTimeoutError
from dragoman.serve.observability.batch import BatchedHistogram
from dragoman.serve.observability.request_metrics import LATENCY_BUCKETS
from dragoman.serve.search.hypothesis import FinishReason
from dragoman.tables import read_table

CloseReason = Literal[
    "body_timeout",
    "evicted",
    "handshake",
    "header_timeout",
    "idle_timeout",
    "invalid",
    "pipelined",
    "send_timeout",
    "shutdown",
    "too_many",
    "too_many_per_address",
]
CLOSE_REASONS: tuple[CloseReason, ...] = get_args(CloseReason)


class ConnectionMetrics:
    """HTTP connections: how many are `open`, and why the server closed or refused some."""

    def __init__(self, gauges: Mapping[Any, Gauge], counters: Mapping[Any, Counter]) -> None:
        """Takes the instruments of the service."""
        self.open, self._counters = gauges["http_connections"], counters

    def count_closed(self, reason: CloseReason) -> None:
        """Counts a connection that the server closes or refuses."""
        self._counters["http_connections_closed", reason].inc()


SEQUENCE_BUCKETS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
_FAILURES = tuple(
    error.reason for error in (CancelledError, QueueTimeoutError, DeadlineExceededError, DrainingError, InternalError)
)
# What the table names, because code decides it.
_BUCKETS = {"latency": LATENCY_BUCKETS, "sequences": SEQUENCE_BUCKETS}
_VALUES = {
    "abandoned": (CancelledError.reason, DeadlineExceededError.reason),
    "ends": (*FinishReason, *_FAILURES),
    "failures": _FAILURES,
    "close_reasons": CLOSE_REASONS,
}
_TABLE: dict[str, dict[str, dict[str, Any]]] = read_table(__file__, "instruments.yaml")
# The name of an instrument, and the value of its own label, if it has one.
Key = str | tuple[str, str]


class Instruments:
    """Instruments by name and label value. Thread-safe."""

    def __init__(self, kind: str, registry: CollectorRegistry, model: str | None = None) -> None:
        """Registers the instruments of a `kind` in the table; those of a model have its name as a label."""
        self.counters: dict[Key, Counter] = {}
        self.gauges: dict[Key, Gauge] = {}
        self.histograms: dict[Key, BatchedHistogram] = {}
        self.infos: dict[Key, Info] = {}
        kinds: dict[str, tuple[type[Any], dict[Key, Any]]] = {
            "counter": (Counter, self.counters),
            "gauge": (Gauge, self.gauges),
            "histogram": (BatchedHistogram, self.histograms),
            "info": (Info, self.infos),
        }
        first = {} if model is None else {"model": model}
        for name, row in _TABLE[kind].items():
            make, made = kinds[row["kind"]]
            own = (row["label"],) if "label" in row else ()
            labels = () if make is Info else (*first, *own)
            options = {"buckets": _named(row["buckets"], _BUCKETS)} if "buckets" in row else {}
            instrument = make(f"dragoman_{name}", row["help"], labels, registry=registry, **options)
            if own:
                for value in _named(row["values"], _VALUES):
                    made[name, value] = instrument.labels(*first.values(), value)
            else:
                made[name] = instrument.labels(*first.values()) if labels else instrument


def _named(values: Any, known: dict[str, Any]) -> Any:
    """Returns the values of a list, which may be that of a name."""
    return known[values] if isinstance(values, str) else values
