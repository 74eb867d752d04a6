"""The Prometheus instruments of requests: how many of each kind and outcome there were, and how long they took.

Every model has them, and the requests that came to none. Conventions are those of `serve.observability.metrics`.
Moved by `serve.observability.service_metrics`.
"""

from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram

from serve.errors import ERRORS

Protocol = Literal["grpc", "rest"]
Method = Literal[
    "translate",
    "translate_stream",
    "translate_many",
    "score",
    "infer",
    "infer_stream",
    "generate",
    "generate_stream",
    "other",
]

METHODS: tuple[tuple[Protocol, Method], ...] = (
    ("grpc", "translate"),
    ("grpc", "translate_stream"),
    ("grpc", "translate_many"),
    ("grpc", "score"),
    ("grpc", "infer"),
    ("grpc", "infer_stream"),
    ("grpc", "other"),
    ("rest", "translate"),
    ("rest", "translate_stream"),
    ("rest", "score"),
    ("rest", "infer"),
    ("rest", "generate"),
    ("rest", "generate_stream"),
    ("rest", "other"),
)

OK = "ok"
OUTCOMES = (OK, *(error.reason for error in ERRORS))

# Translations of one sentence take tens of milliseconds: the edges are dense there.
LATENCY_BUCKETS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1),
    *(0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0),
)


class RequestMetrics:
    """Requests by outcome, and how long they took; of one model, or of none."""

    def __init__(self, registry: CollectorRegistry, model: str) -> None:
        """Registers the instruments.

        Args:
            registry: where they live.
            model: the value of the label `model`; empty for requests that never came to one.
        """
        self._model = model
        self._requests = Counter(
            "dragoman_requests",
            "Requests received, by outcome.",
            ("model", "protocol", "method", "outcome"),
            registry=registry,
        )
        self._durations = Histogram(
            "dragoman_request_duration_seconds",
            "From the received to the answered request.",
            ("model", "protocol", "outcome"),
            registry=registry,
            buckets=LATENCY_BUCKETS,
        )
        for protocol, method in METHODS:
            for outcome in OUTCOMES:
                self._requests.labels(model, protocol, method, outcome)
            for outcome in (OK, "error"):
                self._durations.labels(model, protocol, outcome)

    def finish(self, protocol: Protocol, method: Method, outcome: str, seconds: float) -> None:
        """Counts a request that ended."""
        self._requests.labels(self._model, protocol, method, outcome).inc()
        self._durations.labels(self._model, protocol, OK if outcome == OK else "error").observe(seconds)
