"""Prometheus instruments of the service and of every model.

Durations are in seconds; counters end in `_total`. Every label value exists from the start, so that rates begin at 0.
No label holds a text, a request id or another value chosen by a client. Each model has its own registry: its series
disappear with it.
"""

from collections import Counter as Tally
from collections.abc import Collection, Iterator, Sequence
from copy import copy
from typing import Literal, Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Info, disable_created_metrics
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dragoman.serve.errors import CancelledError, DeadlineExceededError, DrainingError, InternalError, QueueTimeoutError
from dragoman.serve.observability.batch import Batch
from dragoman.serve.observability.connections import ConnectionMetrics
from dragoman.serve.observability.histogram import BatchedHistogram
from dragoman.serve.observability.request_metrics import LATENCY_BUCKETS, NO_MODEL, Method, Protocol, RequestMetrics
from dragoman.serve.observability.usage import RequestUsage
from dragoman.serve.search.hypothesis import FinishReason

DOCUMENT_STATUSES = ("done", "failed")

Phase = Literal["encode", "decode"]

ABANDONED = (CancelledError.reason, DeadlineExceededError.reason)
FAILURES = tuple(
    error.reason for error in (CancelledError, QueueTimeoutError, DeadlineExceededError, DrainingError, InternalError)
)

# The buckets resolve steps of a few milliseconds.
PACE_BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.25)
SEQUENCE_BUCKETS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
TOKEN_BUCKETS = (*(1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0), *(200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0))
TEXT_BUCKETS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


class Metrics:
    """The instruments of one model. Thread-safe."""

    def __init__(self, registry: CollectorRegistry, model: str) -> None:
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
        """Returns metrics for the next version of the model; counters continue, load gauges add up while both run."""
        successor = copy(self)
        successor._load = (0, 0, 0)  # noqa: SLF001 - private state of the same class
        return successor

    def _register_requests(self) -> None:
        self.requests = RequestMetrics(self.registry, self._model)
        self._responses = Batch(self.registry, self._count_responses)
        self._tokenize = self._histogram(
            "request_tokenize_seconds", "Text to tokens, for each answered request.", LATENCY_BUCKETS
        )
        self._inference = self._histogram(
            "request_inference_seconds",
            "From the encoder to the last token, the slowest text of each answered request.",
            LATENCY_BUCKETS,
        )
        self._request_tokens = {
            side: self._histogram(
                f"request_{side}_tokens", f"{side.capitalize()} tokens of each answered request.", TOKEN_BUCKETS
            )
            for side in ("source", "target")
        }
        self._texts = self._histogram("request_texts", "Texts in each answered request.", TEXT_BUCKETS)
        self._source_tokens = self._counter("source_tokens", "Source tokens of answered requests, end tokens included.")
        self._target_tokens = self._counter(
            "target_tokens",
            "Target tokens of answered requests, end tokens excluded; of several translations, those of the best.",
        )

    def _register_sequences(self) -> None:
        self._translated = Batch(self.registry, self._count_translated)
        self._queue = self._histogram(
            "request_queue_seconds", "From admission to the encoder, for each started sequence.", LATENCY_BUCKETS
        )
        self._first_token = self._histogram(
            "time_to_first_token_seconds",
            "From admission to the first target token, for each translated sequence.",
            LATENCY_BUCKETS,
        )
        self._further_token = self._histogram(
            "time_per_output_token_seconds",
            "Mean time of the tokens after the first, the end token included, for each translated sequence.",
            PACE_BUCKETS,
        )
        self._phases = {
            phase: self._histogram(
                f"request_{phase}_seconds", f"{description}, for each translated sequence.", LATENCY_BUCKETS
            )
            for phase, description in (
                ("encode", "From the queue to the end of the encoder"),
                ("decode", "From the end of the encoder to the last token"),
            )
        }
        release = self._histogram(
            "cancel_release_seconds",
            "From cancellation or deadline until a sequence releases its slot or its place in the queue.",
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
            self._gauge("sequences_waiting", "Sequences in the queue."),
            self._gauge("sequences_running", "Sequences in engines."),
            self._gauge("rows_running", "Rows of the running sequences."),
        )
        self._oldest = self._gauge("queue_oldest_seconds", "Age of the longest waiting sequence; 0 if none waits.")
        self._running_peak = self._gauge(
            "sequences_running_peak", "Maximum of sequences that ran at once since the start."
        )
        self._slots = self._gauge("slots", "Slots of all engines together.")
        self._queue_limit = self._gauge("queue_limit", "Maximum of waiting rows.")

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
            "padding_tokens", "Computed padding tokens, because sequences differ in length.", "side"
        ).labels(self._model, "source")

    def _register_cache(self) -> None:
        self._lookups = Batch(self.registry, self._count_lookups)
        lookups = self._counter("result_cache_lookups", "Lookups in the result cache, by result.", "result")
        self._cache_lookups = {hit: lookups.labels(self._model, "hit" if hit else "miss") for hit in (False, True)}
        self._cache_evictions = self._counter("result_cache_evictions", "Results evicted from the result cache.")
        self._cache_bytes = self._gauge("result_cache_bytes", "Memory of the result cache, an upper bound.")

    def _register_model(self) -> None:
        self._ready = self._gauge("model_ready", "1 if the model would translate a request now.")
        self._model_info = Info("dragoman_model", "The served model.", registry=self.registry)

    def set_info(self, model: dict[str, str]) -> None:
        """Sets the labels of the info gauge, which is always 1."""
        self._model_info.info({"model": self._model, **model})

    def set_limits(self, slots: int, queue_limit: int) -> None:
        """Sets the slots of all engines together and the queue limit in rows."""
        self._slots.set(slots)
        self._queue_limit.set(queue_limit)

    def set_ready(self, *, ready: bool) -> None:
        """Sets whether the model is ready."""
        self._ready.set(ready)

    def set_load(self, waiting: int, running: int, running_rows: int, most_running: int = 0) -> None:
        """Sets the numbers of waiting and running sequences, and the rows of the latter.

        The scheduler's lock orders the calls. A scheduler that does not report every change gives the most sequences
        that ran at once so far.
        """
        load = (waiting, running, running_rows)
        # `inc`, not `set`: another version of the model may update the same gauges.
        for gauge, now, before in zip(self._load_gauges, load, self._load, strict=True):
            if now != before:
                gauge.inc(now - before)
        self._load = load
        if max(running, most_running) > self._peak:
            self._peak = max(running, most_running)
            self._running_peak.set(self._peak)

    def set_oldest(self, seconds: float) -> None:
        """Sets the age of the longest waiting sequence."""
        self._oldest.set(seconds)

    def observe_queue(self, seconds: float) -> None:
        """Observes the queue time of a sequence that starts."""
        self._queue.observe(seconds)

    def observe_translated(
        self,
        reason: FinishReason,
        *,
        first_token_seconds: float,
        further_tokens: int,
        further_seconds: float,
        encode_seconds: float,
        decode_seconds: float,
    ) -> None:
        """Counts a translated sequence and observes its times.

        Args:
            first_token_seconds: from admission to the first token.
            further_tokens: number of tokens after the first, the end token included.
            further_seconds: total time of the further tokens.
            encode_seconds: from the queue to the end of the encoder.
            decode_seconds: from the end of the encoder to the last token.
        """
        pace_seconds = further_seconds / further_tokens if further_tokens else None
        self._translated.add((reason, first_token_seconds, pace_seconds, encode_seconds, decode_seconds))

    def _count_translated(self, translated: Sequence[tuple[FinishReason, float, float | None, float, float]]) -> None:
        reasons, first_tokens, paces, encodes, decodes = zip(*translated, strict=True)
        for reason, count in Tally(reasons).items():
            self._finished[reason].inc(count)
        self._first_token.observe_all(first_tokens)
        self._further_token.observe_all([pace for pace in paces if pace is not None])
        self._phases["encode"].observe_all(encodes)
        self._phases["decode"].observe_all(decodes)

    def observe_release(self, cause: str, seconds: float) -> None:
        """Observes how long an abandoned sequence kept its slot or its place in the queue.

        Args:
            cause: one of `ABANDONED`.
            seconds: since the client went away or the deadline passed.
        """
        self._release[cause].observe(seconds)

    def observe_step(self, phase: Phase, rows: int, seconds: float) -> None:
        """Observes one run of the model over `rows` sequences."""
        self._steps[phase].inc()
        self._step_seconds[phase].observe(seconds)
        self._step_sequences[phase].observe(rows)

    def add_steps(
        self,
        phase: Phase,
        *,
        seconds: float,
        sequences: int,
        by_seconds: Collection[int],
        by_sequences: Collection[int],
    ) -> None:
        """Adds many runs of the model at once.

        Args:
            by_seconds: runs up to each of `LATENCY_BUCKETS`, and above all.
            by_sequences: runs up to each of `SEQUENCE_BUCKETS`, and above all.
        """
        self._steps[phase].inc(sum(by_seconds))
        self._step_seconds[phase].add(by_seconds, seconds)
        self._step_sequences[phase].add(by_sequences, sequences)

    def observe_padding(self, tokens: int) -> None:
        """Counts the padding tokens of one encoder run."""
        self._padding.inc(tokens)

    def observe_failure(self, reason: str, wasted_tokens: int) -> None:
        """Counts a sequence that ended without a translation.

        Args:
            reason: the `reason` of a `ServiceError`.
            wasted_tokens: computed target tokens.
        """
        self._finished[reason].inc()
        if wasted_tokens:
            self._wasted[reason].inc(wasted_tokens)

    def observe_cache(self, *, hit: bool, lookups: int = 1) -> None:
        """Counts lookups of one result in the result cache."""
        self._lookups.add((hit, lookups))

    def _count_lookups(self, results: Sequence[tuple[bool, int]]) -> None:
        for hit, counter in self._cache_lookups.items():
            counter.inc(sum(lookups for found, lookups in results if found is hit))

    def set_cache(self, *, bytes_used: int, evicted: int) -> None:
        """Sets the size of the result cache and counts the entries evicted by an insertion."""
        self._cache_bytes.set(bytes_used)
        self._cache_evictions.inc(evicted)

    def observe_response(self, usage: RequestUsage) -> None:
        """Counts the texts, tokens and times of one successful request."""
        self._responses.add(usage)

    def _count_responses(self, usages: Sequence[RequestUsage]) -> None:
        source_tokens = [usage.source_tokens for usage in usages]
        target_tokens = [usage.target_tokens for usage in usages]
        self._texts.observe_all([usage.texts for usage in usages])
        self._source_tokens.inc(sum(source_tokens))
        self._target_tokens.inc(sum(target_tokens))
        self._request_tokens["source"].observe_all(source_tokens)
        self._request_tokens["target"].observe_all(target_tokens)
        self._tokenize.observe_all([usage.timings.tokenize_seconds for usage in usages])
        self._inference.observe_all([usage.timings.inference_seconds for usage in usages])

    def _counter(self, name: str, description: str, *labels: str) -> Counter:
        """Returns a counter of the model; with further labels, one whose `labels` has the model first."""
        made = Counter(f"dragoman_{name}", description, ("model", *labels), registry=self.registry)
        return made if labels else made.labels(self._model)

    def _gauge(self, name: str, description: str) -> Gauge:
        return Gauge(f"dragoman_{name}", description, ("model",), registry=self.registry).labels(self._model)

    def _histogram(self, name: str, description: str, buckets: tuple[float, ...], *labels: str) -> BatchedHistogram:
        """Returns a histogram of the model; labels as of `_counter`."""
        made = BatchedHistogram(
            f"dragoman_{name}", description, ("model", *labels), registry=self.registry, buckets=buckets
        )
        return made if labels else made.labels(self._model)


RELOAD_OUTCOMES = ("ok", "failed")
# Creation times are useless for rates and would be a third of all lines.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library's


class ServiceMetrics:
    """The instruments of the service. Thread-safe."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        # Before all: if a scrape finds no request in flight, it finds every request counted.
        self._inflight_changes = Batch(self.registry, self._change_inflight)
        self._inflight = Gauge("dragoman_inflight_requests", "Requests in flight.", registry=self.registry)
        self._models: dict[str, Metrics] = {}
        unrouted = CollectorRegistry()
        self._unrouted = RequestMetrics(unrouted, NO_MODEL)
        self.registry.register(_Merged(self._models, unrouted))
        self._ready = Gauge("dragoman_ready", "1 if every model would translate a request now.", registry=self.registry)
        self._draining = Gauge("dragoman_draining", "1 from the stop signal to the exit.", registry=self.registry)
        self.http_connections = ConnectionMetrics(self.registry)
        self.grpc_connections_ignored = Counter(
            "dragoman_grpc_connections_ignored",
            "gRPC connections whose packets are dropped, because they sent too much without calls.",
            registry=self.registry,
        )
        self._build = Info("dragoman_build", "Versions of the running software.", registry=self.registry)
        self._reloads = Counter(
            "dragoman_reloads", "Reloads of the models, by outcome.", ("outcome",), registry=self.registry
        )
        for outcome in RELOAD_OUTCOMES:
            self._reloads.labels(outcome)
        self._documents = Counter(
            "dragoman_documents", "Documents whose translation ended, by status.", ("status",), registry=self.registry
        )
        for status in DOCUMENT_STATUSES:
            self._documents.labels(status)
        self._failed_models = Gauge(
            "dragoman_reload_failed_models", "Models that failed in the last reload.", registry=self.registry
        )

    def of_model(self, name: str) -> Metrics:
        """Returns metrics for a model; counters of an earlier version continue."""
        known = self._models.get(name)
        if known is not None:
            return known.successor()
        self._models[name] = metrics = Metrics(CollectorRegistry(), name)
        return metrics

    def keep(self, name: str, metrics: Metrics) -> None:
        """Exposes the metrics of a model, also if `forget` was called since they were made."""
        self._models[name] = metrics

    def forget(self, name: str) -> None:
        """Drops all series of a model."""
        self._models.pop(name, None)

    def set_build(self, build: dict[str, str]) -> None:
        """Sets the versions, as labels of an info gauge that is always 1."""
        self._build.info(build)

    def set_state(self, *, ready: bool, draining: bool) -> None:
        """Sets the gauges of the service's state."""
        self._ready.set(ready)
        self._draining.set(draining)

    def count_document(self, status: str) -> None:
        """Counts a document whose translation ended; `status` is one of `DOCUMENT_STATUSES`."""
        self._documents.labels(status).inc()

    def start_request(self) -> None:
        """Counts a request in flight until `finish_request`."""
        self._inflight_changes.add(1)

    def finish_request(self, model: str, protocol: Protocol, method: Method, outcome: str, seconds: float) -> None:
        """Counts a finished request, exactly once per `start_request`.

        Args:
            model: name of the last model; `NO_MODEL` if the request reached none.
            protocol: as of `RecordedRequest`.
            method: as of `RecordedRequest`.
            outcome: `ok`, or the `reason` of a `ServiceError`.
        """
        known = self._models.get(model)
        requests = self._unrouted if known is None else known.requests
        requests.finish(protocol, method, outcome, seconds)
        # Last: when no request is in flight, every request has been counted.
        self._inflight_changes.add(-1)

    def _change_inflight(self, changes: Sequence[int]) -> None:
        self._inflight.inc(sum(changes))

    def observe_reload(self, failed_models: int) -> None:
        """Counts a reload by outcome and sets the number of failed models."""
        self._reloads.labels("failed" if failed_models else "ok").inc()
        self._failed_models.set(failed_models)


class _Merged(Collector):
    """Merges the series of several registries by family, as the text format requires."""

    def __init__(self, models: dict[str, Metrics], unrouted: CollectorRegistry) -> None:
        self._models = models
        self._unrouted = unrouted

    def describe(self) -> list[Metric]:
        """Describes nothing, so that registration does not collect."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields each family once."""
        families: dict[str, Metric] = {}
        # A copy: other threads add and remove models.
        for registry in (self._unrouted, *(metrics.registry for metrics in list(self._models.values()))):
            for family in registry.collect():
                families.setdefault(family.name, family)
                if families[family.name] is not family:
                    families[family.name].samples += family.samples
        yield from families.values()
