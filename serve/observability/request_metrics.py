"""Prometheus counters and durations of requests, by outcome."""

from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter

from dragoman.serve.errors import ERRORS
from dragoman.serve.observability.batch import Batch, BatchedHistogram

Protocol = Literal["grpc", "rest"]
Method = Literal[
    "translate",
    "translate_stream",
    "translate_many",
    "score",
    "attention",
    "infer",
    "infer_stream",
    "generate",
    "generate_stream",
    "libretranslate",
    "deepl",
    "google",
    "microsoft",
    "other",
]

_COMMON: tuple[Method, ...] = ("translate", "translate_stream", "score", "infer", "other")
_OWN: dict[Protocol, tuple[Method, ...]] = {
    "grpc": ("translate_many", "infer_stream"),
    "rest": ("attention", "generate", "generate_stream", "libretranslate", "deepl", "google", "microsoft"),
}
METHODS = tuple((protocol, method) for protocol, own in _OWN.items() for method in (*_COMMON, *own))

# The label of requests that reached no model; Prometheus treats an empty label as absent.
NO_MODEL = ""
OK = "ok"
OUTCOMES = (OK, *(error.reason for error in ERRORS))

# Most translations of a sentence take tens of milliseconds: the edges are dense there.
LATENCY_BUCKETS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1),
    *(0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0),
)


class RequestMetrics:
    """Request counts and durations by outcome, of one model or of none."""

    def __init__(self, registry: CollectorRegistry, model: str) -> None:
        self._ended = Batch(registry, self._count)
        requests = Counter(
            "dragoman_requests",
            "Requests received, by outcome.",
            ("model", "protocol", "method", "outcome"),
            registry=registry,
        )
        durations = BatchedHistogram(
            "dragoman_request_duration_seconds",
            "From the received to the answered request.",
            ("model", "protocol", "outcome"),
            registry=registry,
            buckets=LATENCY_BUCKETS,
        )
        self._requests = {
            (protocol, method, outcome): requests.labels(model, protocol, method, outcome)
            for protocol, method in METHODS
            for outcome in OUTCOMES
        }
        self._durations = {
            (protocol, outcome): durations.labels(model, protocol, outcome)
            for protocol in get_args(Protocol)
            for outcome in (OK, "error")
        }

    def finish(self, protocol: Protocol, method: Method, outcome: str, seconds: float) -> None:
        """Counts a finished request and its duration."""
        self._ended.add((protocol, method, outcome, seconds))

    def _count(self, ended: Sequence[tuple[Protocol, Method, str, float]]) -> None:
        for request, count in Tally((protocol, method, outcome) for protocol, method, outcome, _ in ended).items():
            self._requests[request].inc(count)
        durations = defaultdict[tuple[Protocol, str], list[float]](list)
        for protocol, _, outcome, seconds in ended:
            durations[protocol, OK if outcome == OK else "error"].append(seconds)
        for kind, duration in durations.items():
            self._durations[kind].observe_all(duration)
