"""Prometheus instruments of the service and of every model.

Durations are in seconds; counters end in `_total`. Every label value exists from the start, so that rates begin at 0.
No label holds a text, a request id or another value chosen by a client. Each model has its own registry: its series
disappear with it.
"""

from collections import Counter as Tally
from collections.abc import Collection, Iterator, Sequence
from copy import copy
from typing import Literal, Self

from prometheus_client import CollectorRegistry, Gauge, disable_created_metrics
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dragoman.serve.observability.batch import Batch
from dragoman.serve.observability.instruments import ConnectionMetrics, Instruments
from dragoman.serve.observability.request_metrics import NO_MODEL, Method, Protocol, RequestMetrics
from dragoman.serve.observability.usage import RequestUsage
from dragoman.serve.search.hypothesis import FinishReason

EvictionCause = Literal["idle", "memory"]
Phase = Literal["encode", "decode"]
# Finish reason and seconds of a translated sequence: in the queue; from admission to the first token; mean of the later
# tokens, or None if there is none; from the queue to the end of the encoder; from there to the last token.
SequenceTimes = tuple[FinishReason, float, float, float | None, float, float]


class Metrics:
    """The instruments of one model. Thread-safe.

    Attributes:
        memory: bytes of the model; two versions of it may be in memory.
        oldest: age of the longest waiting sequence in seconds.
        queue: queue time in seconds of sequences that started and were not translated.
    """

    def __init__(self, registry: CollectorRegistry, model: str) -> None:
        self.registry = registry
        self._model = model
        self.requests = RequestMetrics(registry, model)
        self.responses = Batch(registry, self._count_responses)
        self.translated = Batch(registry, self._count_translated)
        self._lookups = Batch(registry, self._count_lookups)
        made = Instruments("model", registry, model)
        self._counters, self._gauges = made.counters, made.gauges
        self._histograms, self._infos = made.histograms, made.infos
        self.waits, self.padding = self._counters["model_waits"], self._counters["padding_tokens", "source"]
        self.ready, self.memory = self._gauges["model_ready"], self._gauges["model_memory_bytes"]
        self.oldest, self.queue = self._gauges["queue_oldest_seconds"], self._histograms["request_queue_seconds"]
        self._load_gauges = [self._gauges[name] for name in ("sequences_waiting", "sequences_running", "rows_running")]
        self._load = (0, 0, 0)
        self._peak = 0

    def successor(self) -> Self:
        """Returns metrics for the next version of the model; counters continue, load gauges add up while both run."""
        successor = copy(self)
        successor._load = (0, 0, 0)  # noqa: SLF001 - private state of the same class
        return successor

    def observe_load(self, seconds: float | None) -> None:
        """Observes the duration of a load; None: it failed."""
        if seconds is None:
            self._counters["model_failed_loads"].inc()
        else:
            self._histograms["model_load_seconds"].observe(seconds)

    def observe_eviction(self, cause: EvictionCause) -> None:
        """Counts that the model leaves the memory."""
        self._counters["model_evictions", cause].inc()

    def set_info(self, model: dict[str, str]) -> None:
        """Sets the labels of the info gauge, which is always 1."""
        self._infos["model"].info({"model": self._model, **model})

    def set_limits(self, slots: int, queue_limit: int) -> None:
        """Sets the slots of all engines together and the queue limit in rows."""
        self._gauges["slots"].set(slots)
        self._gauges["queue_limit"].set(queue_limit)

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
            self._gauges["sequences_running_peak"].set(self._peak)

    def _count_translated(self, translated: Sequence[SequenceTimes]) -> None:
        reasons, waits, first_tokens, paces, encodes, decodes = zip(*translated, strict=True)
        for reason, count in Tally(reasons).items():
            self._counters["sequences_finished", reason].inc(count)
        self._histograms["request_queue_seconds"].observe_all(waits)
        self._histograms["time_to_first_token_seconds"].observe_all(first_tokens)
        self._histograms["time_per_output_token_seconds"].observe_all([pace for pace in paces if pace is not None])
        self._histograms["request_encode_seconds"].observe_all(encodes)
        self._histograms["request_decode_seconds"].observe_all(decodes)

    def observe_release(self, cause: str, seconds: float) -> None:
        """Observes how long after a cancellation or deadline a sequence kept its slot or its place in the queue."""
        self._histograms["cancel_release_seconds", cause].observe(seconds)

    def observe_step(self, phase: Phase, rows: int, seconds: float) -> None:
        """Observes one run of the model over `rows` sequences."""
        self._counters["engine_steps", phase].inc()
        self._histograms["engine_step_seconds", phase].observe(seconds)
        self._histograms["engine_step_sequences", phase].observe(rows)

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
        self._counters["engine_steps", phase].inc(sum(by_seconds))
        self._histograms["engine_step_seconds", phase].add(by_seconds, seconds)
        self._histograms["engine_step_sequences", phase].add(by_sequences, sequences)

    def observe_failure(self, reason: str, wasted_tokens: int) -> None:
        """Counts a sequence that ended by the `reason` of a `ServiceError`, and its computed target tokens."""
        self._counters["sequences_finished", reason].inc()
        if wasted_tokens:
            self._counters["wasted_tokens", reason].inc(wasted_tokens)

    def observe_cache(self, *, hit: bool, lookups: int = 1) -> None:
        """Counts lookups of one result in the result cache."""
        self._lookups.add((hit, lookups))

    def _count_lookups(self, results: Sequence[tuple[bool, int]]) -> None:
        for hit, result in ((False, "miss"), (True, "hit")):
            counted = sum(lookups for found, lookups in results if found is hit)
            self._counters["result_cache_lookups", result].inc(counted)

    def set_cache(self, *, bytes_used: int, evicted: int) -> None:
        """Sets the size of the result cache and counts the entries evicted by an insertion."""
        self._gauges["result_cache_bytes"].set(bytes_used)
        self._counters["result_cache_evictions"].inc(evicted)

    def _count_responses(self, usages: Sequence[RequestUsage]) -> None:
        source_tokens = [usage.source_tokens for usage in usages]
        target_tokens = [usage.target_tokens for usage in usages]
        self._histograms["request_texts"].observe_all([usage.texts for usage in usages])
        self._counters["source_tokens"].inc(sum(source_tokens))
        self._counters["target_tokens"].inc(sum(target_tokens))
        self._histograms["request_source_tokens"].observe_all(source_tokens)
        self._histograms["request_target_tokens"].observe_all(target_tokens)
        self._histograms["request_tokenize_seconds"].observe_all([usage.timings.tokenize_seconds for usage in usages])
        self._histograms["request_inference_seconds"].observe_all([usage.timings.inference_seconds for usage in usages])


# Creation times are useless for rates and would be a third of all lines.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library's


class ServiceMetrics:
    """The instruments of the service. Thread-safe."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        # Before all: if a scrape finds no request in flight, it finds every request counted.
        self._inflight = 0
        inflight = Gauge("dragoman_inflight_requests", "Requests in flight.", registry=self.registry)
        inflight.set_function(lambda: self._inflight)
        self._models: dict[str, Metrics] = {}
        unrouted = CollectorRegistry()
        self._unrouted = RequestMetrics(unrouted, NO_MODEL)
        self.registry.register(_Merged(self._models, unrouted))
        made = Instruments("service", self.registry)
        self._counters, self._gauges, self._infos = made.counters, made.gauges, made.infos
        self.http_connections = ConnectionMetrics(made.gauges, made.counters)
        self.grpc_connections_ignored = made.counters["grpc_connections_ignored"]

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
        self._infos["build"].info(build)

    def set_state(self, *, ready: bool, draining: bool) -> None:
        """Sets the gauges of the service's state."""
        self._gauges["ready"].set(ready)
        self._gauges["draining"].set(draining)

    def count_document(self, status: str) -> None:
        """Counts a document whose translation ended; `status` is `done` or `failed`."""
        self._counters["documents", status].inc()

    def count_callback(self, result: str) -> None:
        """Counts an attempt of a call back; `result` is `delivered`, `failed`, `abandoned` or `refused`."""
        self._counters["callbacks", result].inc()

    def start_request(self) -> None:
        """Counts a request in flight until `finish_request`. Both belong to the event loop's thread."""
        self._inflight += 1

    def finish_request(self, model: str, protocol: Protocol, method: Method, outcome: str, seconds: float) -> None:
        """Counts a finished request, exactly once per `start_request`.

        Args:
            model: name of the last model; `NO_MODEL` if the request reached none.
            outcome: `ok`, or the `reason` of a `ServiceError`.
        """
        known = self._models.get(model)
        requests = self._unrouted if known is None else known.requests
        requests.finish(protocol, method, outcome, seconds)
        # Last: when no request is in flight, every request has been counted.
        self._inflight -= 1

    def observe_reload(self, failed_models: int) -> None:
        """Counts a reload by outcome and sets the number of failed models."""
        self._counters["reloads", "failed" if failed_models else "ok"].inc()
        self._gauges["reload_failed_models"].set(failed_models)


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
