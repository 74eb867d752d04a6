"""Every Prometheus instrument of one served model, in one class.

Requests are counted by `serve.observability.metrics`. Durations are in seconds, counters end in `_total`,
every label value exists from the start so that rates begin at 0, and no label ever holds text, a request id or
anything else that a client chooses. The scheduler, the engine and the translator call the small methods.

The Prometheus instruments of requests: how many of each kind and outcome there were, and how long they took.

Every model has them, and the requests that came to none. Conventions are those of `serve.observability.metrics`.
Moved by `serve.observability.metrics`.

The Prometheus instruments of the whole service, and the metrics of every model in one place.

Each model has a registry of its own, so that a model that goes away takes all of its series along; whoever reads the
metrics sees one registry. Conventions are those of `serve.observability.metrics`. Built by `serve.app`, read by
`serve.api.http_api`.
"""

from collections.abc import Iterator
from copy import copy
from typing import Literal, Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, disable_created_metrics
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from serve.errors import ERRORS, CancelledError, DeadlineExceededError, DrainingError, InternalError, QueueTimeoutError
from serve.search.hypothesis import FinishReason
from serve.translation.response import Response

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


Phase = Literal["encode", "decode"]

ABANDONED = (CancelledError.reason, DeadlineExceededError.reason)
FAILURES = tuple(
    error.reason for error in (CancelledError, QueueTimeoutError, DeadlineExceededError, DrainingError, InternalError)
)

# A step takes a few milliseconds.
PACE_BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.25)
SEQUENCE_BUCKETS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
TOKEN_BUCKETS = (*(1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0), *(200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0))
TEXT_BUCKETS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


class Metrics:
    """The instruments and the few ways to move them. Every method may be called from any thread."""

    def __init__(self, registry: CollectorRegistry, model: str) -> None:
        """Registers every instrument.

        Args:
            registry: where the instruments live; one for each model.
            model: the value of the label `model`.
        """
        self.registry = registry
        self._model = model
        self._register_requests()
        self._register_sequences()
        self._register_engine()
        self._register_cache()
        self._register_model()
        self._load = (0, 0, 0)
        self._peak = 0

    def successor(self) -> Self:
        """Returns metrics that go on counting where these are, for the next version of the model.

        While both versions run, the gauges of the load show their sum.
        """
        successor = copy(self)
        successor._load = (0, 0, 0)  # noqa: SLF001 - our own
        return successor

    def _register_requests(self) -> None:
        self.requests = RequestMetrics(self.registry, self._model)
        self._tokenize = self._histogram(
            "request_tokenize_seconds", "Text to tokens, for each answered request.", LATENCY_BUCKETS
        ).labels(self._model)
        self._inference = self._histogram(
            "request_inference_seconds",
            "From the encoder to the last token, the slowest text of each answered request.",
            LATENCY_BUCKETS,
        ).labels(self._model)
        self._request_tokens = {
            side: self._histogram(
                f"request_{side}_tokens", f"{side.capitalize()} tokens of each answered request.", TOKEN_BUCKETS
            ).labels(self._model)
            for side in ("source", "target")
        }
        self._texts = self._histogram("request_texts", "Texts in each answered request.", TEXT_BUCKETS).labels(
            self._model
        )
        self._source_tokens = self._counter(
            "source_tokens", "Source tokens of answered requests, end tokens included."
        ).labels(self._model)
        self._target_tokens = self._counter(
            "target_tokens",
            "Target tokens of answered requests, end tokens excluded; of several translations, those of the best.",
        ).labels(self._model)

    def _register_sequences(self) -> None:
        self._queue = self._histogram(
            "request_queue_seconds", "From admission to the encoder, for each started sequence.", LATENCY_BUCKETS
        ).labels(self._model)
        self._first_token = self._histogram(
            "time_to_first_token_seconds",
            "From admission to the first target token, for each translated sequence.",
            LATENCY_BUCKETS,
        ).labels(self._model)
        self._further_token = self._histogram(
            "time_per_output_token_seconds",
            "Mean time of the tokens after the first, the end token included, for each translated sequence.",
            PACE_BUCKETS,
        ).labels(self._model)
        self._phases = {
            phase: self._histogram(
                f"request_{phase}_seconds", f"{description}, for each translated sequence.", LATENCY_BUCKETS
            ).labels(self._model)
            for phase, description in (
                ("encode", "From the queue to the end of the encoder"),
                ("decode", "From the end of the encoder to the last token"),
            )
        }
        release = self._histogram(
            "cancel_release_seconds",
            "From the moment when nobody waits any more for a sequence until it lets go of its slot or place.",
            LATENCY_BUCKETS,
            "cause",
        )
        self._release = {cause: release.labels(self._model, cause) for cause in ABANDONED}
        finished = self._counter("sequences_finished", "Admitted sequences that ended, by reason.", "reason")
        wasted = self._counter(
            "wasted_tokens", "Target tokens computed for sequences that ended without a translation.", "cause"
        )
        reasons = (*FinishReason, *FAILURES)
        self._finished = {reason: finished.labels(self._model, reason) for reason in reasons}
        self._wasted = {cause: wasted.labels(self._model, cause) for cause in FAILURES}
        self._load_gauges = (
            self._gauge("sequences_waiting", "Sequences in the queue.").labels(self._model),
            self._gauge("sequences_running", "Sequences in slots, and those encoded ahead.").labels(self._model),
            self._gauge("rows_running", "Rows of these sequences: slots, and what was encoded ahead.").labels(
                self._model
            ),
        )
        self._oldest = self._gauge(
            "queue_oldest_seconds", "How long the sequence waits that waits longest; 0 if none does."
        ).labels(self._model)
        self._running_peak = self._gauge(
            "sequences_running_peak", "The most sequences that ran at once since the start."
        ).labels(self._model)
        self._slots = self._gauge("slots", "Slots of all engines together.").labels(self._model)
        self._queue_limit = self._gauge("queue_limit", "The most rows that may wait.").labels(self._model)

    def _register_engine(self) -> None:
        steps = self._counter("engine_steps", "Runs of the model, by phase.", "phase")
        seconds = self._histogram("engine_step_seconds", "Duration of one run of the model.", LATENCY_BUCKETS, "phase")
        sequences = self._histogram(
            "engine_step_sequences", "Sequences computed together in one run of the model.", SEQUENCE_BUCKETS, "phase"
        )
        phases: tuple[Phase, ...] = ("encode", "decode")
        self._steps = {phase: steps.labels(self._model, phase) for phase in phases}
        self._step_seconds = {phase: seconds.labels(self._model, phase) for phase in phases}
        self._step_sequences = {phase: sequences.labels(self._model, phase) for phase in phases}
        self._padding = self._counter(
            "padding_tokens", "Filler tokens that were computed because sequences differ in length.", "side"
        ).labels(self._model, "source")

    def _register_cache(self) -> None:
        lookups = self._counter("result_cache_lookups", "Texts that were looked up in the result cache.", "result")
        self._cache_lookups = {hit: lookups.labels(self._model, "hit" if hit else "miss") for hit in (False, True)}
        self._cache_evictions = self._counter(
            "result_cache_evictions", "Answers that made room for others in the result cache."
        ).labels(self._model)
        self._cache_bytes = self._gauge(
            "result_cache_bytes", "Memory of the answers in the result cache, estimated from above."
        ).labels(self._model)

    def _register_model(self) -> None:
        self._ready = self._gauge("model_ready", "1 if the model would translate a request now.").labels(self._model)
        self._model_info = Info("dragoman_model", "What is served.", registry=self.registry)

    def set_info(self, model: dict[str, str]) -> None:
        """States what is served, as labels of a gauge that is always 1."""
        self._model_info.info({"model": self._model, **model})

    def set_limits(self, slots: int, queue_limit: int) -> None:
        """States the slots of all engines together and the longest queue, in rows."""
        self._slots.set(slots)
        self._queue_limit.set(queue_limit)

    def set_ready(self, *, ready: bool) -> None:
        """States whether the model would translate a request now."""
        self._ready.set(ready)

    def set_load(self, waiting: int, running: int, running_rows: int) -> None:
        """States how many sequences wait and run now, the latter in so many rows.

        Called under the scheduler's lock, which orders the calls.
        """
        load = (waiting, running, running_rows)
        # Not `set`: another version of the model may move the same gauges.
        for gauge, now, before in zip(self._load_gauges, load, self._load, strict=True):
            if now != before:
                gauge.inc(now - before)
        self._load = load
        if running > self._peak:
            self._peak = running
            self._running_peak.set(running)

    def set_oldest(self, seconds: float) -> None:
        """States how long the sequence waits that waits longest."""
        self._oldest.set(seconds)

    def observe_queue(self, seconds: float) -> None:
        """Counts a sequence that leaves the queue for the encoder after `seconds`."""
        self._queue.observe(seconds)

    def observe_pace(self, *, first_token_seconds: float, further_tokens: int, further_seconds: float) -> None:
        """Counts how fast a translated sequence came.

        Args:
            first_token_seconds: from admission to its first token.
            further_tokens: how many came after that, the end token included.
            further_seconds: how long they took together.
        """
        self._first_token.observe(first_token_seconds)
        if further_tokens:
            self._further_token.observe(further_seconds / further_tokens)

    def observe_phases(self, *, encode_seconds: float, decode_seconds: float) -> None:
        """Counts where the time of a translated sequence went behind the queue."""
        self._phases["encode"].observe(encode_seconds)
        self._phases["decode"].observe(decode_seconds)

    def observe_release(self, cause: str, seconds: float) -> None:
        """Counts a sequence that let go of its slot or its place in the queue, so long after nobody waited for it.

        Args:
            cause: one of `ABANDONED`.
            seconds: from the moment when the client went away or its deadline passed.
        """
        self._release[cause].observe(seconds)

    def observe_step(self, phase: Phase, rows: int, seconds: float) -> None:
        """Counts one run of the model over `rows` sequences."""
        self._steps[phase].inc()
        self._step_seconds[phase].observe(seconds)
        self._step_sequences[phase].observe(rows)

    def observe_padding(self, tokens: int) -> None:
        """Counts the filler tokens of one run of the encoder."""
        self._padding.inc(tokens)

    def observe_finish(self, reason: str, wasted_tokens: int) -> None:
        """Counts an admitted sequence that ended.

        Args:
            reason: a `FinishReason`, or the `reason` of the `ServiceError` that it ended with.
            wasted_tokens: target tokens that were computed for nothing; 0 if there is a translation.
        """
        self._finished[reason].inc()
        if wasted_tokens:
            self._wasted[reason].inc(wasted_tokens)

    def observe_cache(self, *, hit: bool) -> None:
        """Counts a text that was looked up in the result cache."""
        self._cache_lookups[hit].inc()

    def set_cache(self, *, bytes_used: int, evicted: int) -> None:
        """States how large the result cache is after an answer came in, which so many others made room for."""
        self._cache_bytes.set(bytes_used)
        self._cache_evictions.inc(evicted)

    def observe_response(self, response: Response) -> None:
        """Counts what one answered request held and where its time went."""
        self._texts.observe(len(response.results))
        source_tokens = sum(result.source_tokens for result in response.results)
        target_tokens = sum(result.target_tokens for result in response.results)
        self._source_tokens.inc(source_tokens)
        self._target_tokens.inc(target_tokens)
        self._request_tokens["source"].observe(source_tokens)
        self._request_tokens["target"].observe(target_tokens)
        self._tokenize.observe(response.timings.tokenize_seconds)
        self._inference.observe(response.timings.inference_seconds)

    def _counter(self, name: str, description: str, *labels: str) -> Counter:
        return Counter(f"dragoman_{name}", description, ("model", *labels), registry=self.registry)

    def _gauge(self, name: str, description: str) -> Gauge:
        return Gauge(f"dragoman_{name}", description, ("model",), registry=self.registry)

    def _histogram(self, name: str, description: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"dragoman_{name}", description, ("model", *labels), registry=self.registry, buckets=buckets)


RELOAD_OUTCOMES = ("ok", "failed")
# The label of requests that never came to a model; Prometheus takes it for no label at all.
NO_MODEL = ""
# When a series began is of no use to rates, and would be a third of all lines.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library's


class ServiceMetrics:
    """The instruments of the service. Every method may be called from any thread."""

    def __init__(self) -> None:
        """Registers every instrument."""
        self.registry = CollectorRegistry()
        self._models: dict[str, Metrics] = {}
        unrouted = CollectorRegistry()
        self._unrouted = RequestMetrics(unrouted, NO_MODEL)
        self.registry.register(_Merged(self._models, unrouted))
        self._ready = Gauge("dragoman_ready", "1 if every model would translate a request now.", registry=self.registry)
        self._draining = Gauge("dragoman_draining", "1 from the signal to stop to the exit.", registry=self.registry)
        self._inflight = Gauge("dragoman_inflight_requests", "Requests not answered yet.", registry=self.registry)
        self._build = Info("dragoman_build", "Versions of what runs.", registry=self.registry)
        self._reloads = Counter(
            "dragoman_reloads", "Reloads of the models, by outcome.", ("outcome",), registry=self.registry
        )
        for outcome in RELOAD_OUTCOMES:
            self._reloads.labels(outcome)
        self._failed_models = Gauge(
            "dragoman_reload_failed_models", "Models that the last reload could not load.", registry=self.registry
        )

    def of_model(self, name: str) -> Metrics:
        """Returns metrics for a model, which go on counting where those of an earlier version of it are."""
        known = self._models.get(name)
        if known is not None:
            return known.successor()
        self._models[name] = metrics = Metrics(CollectorRegistry(), name)
        return metrics

    def keep(self, name: str, metrics: Metrics) -> None:
        """Shows the metrics of a model, even if an earlier version of it was forgotten since they were made."""
        self._models[name] = metrics

    def forget(self, name: str) -> None:
        """Drops every series of a model."""
        self._models.pop(name, None)

    def set_build(self, build: dict[str, str]) -> None:
        """States what runs, as labels of a gauge that is always 1."""
        self._build.info(build)

    def set_state(self, *, ready: bool, draining: bool) -> None:
        """States where the service is in its life."""
        self._ready.set(ready)
        self._draining.set(draining)

    def start_request(self) -> None:
        """Counts a request in; `finish_request` counts it out."""
        self._inflight.inc()

    def finish_request(self, model: str, protocol: Protocol, method: Method, outcome: str, seconds: float) -> None:
        """Counts a request out, once for each `start_request`, whatever became of it.

        Args:
            model: the one that answers; `NO_MODEL` if the request came to none.
            protocol: how it came.
            method: what it wanted.
            outcome: `ok`, or the `reason` of a `ServiceError`.
            seconds: how long it took.
        """
        self._inflight.dec()
        known = self._models.get(model)
        requests = self._unrouted if known is None else known.requests
        requests.finish(protocol, method, outcome, seconds)

    def observe_reload(self, failed_models: int) -> None:
        """Counts a reload of the models, so many of which could not be loaded."""
        self._reloads.labels("failed" if failed_models else "ok").inc()
        self._failed_models.set(failed_models)


class _Merged(Collector):
    """The series of several registries, those of one name together, as the text format wants it."""

    def __init__(self, models: dict[str, Metrics], unrouted: CollectorRegistry) -> None:
        self._models = models
        self._unrouted = unrouted

    def describe(self) -> list[Metric]:
        """Names nothing, so that registering collects nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields every family once."""
        families: dict[str, Metric] = {}
        # A copy: models come and go meanwhile, in other threads.
        for registry in (self._unrouted, *(metrics.registry for metrics in list(self._models.values()))):
            for family in registry.collect():
                families.setdefault(family.name, family)
                if families[family.name] is not family:
                    families[family.name].samples += family.samples
        yield from families.values()
