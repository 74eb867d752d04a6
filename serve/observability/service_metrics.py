"""The Prometheus instruments of the whole service, and the metrics of every model in one place.

Each model has a registry of its own, so that a model that goes away takes all of its series along; whoever reads the
metrics sees one registry. Conventions are those of `serve.observability.metrics`. Built by `serve.app`, read by
`serve.api.http_api`.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Info, disable_created_metrics
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from serve.observability.metrics import Metrics
from serve.observability.request_metrics import Method, Protocol, RequestMetrics

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
