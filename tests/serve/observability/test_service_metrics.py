"""The metrics of several models in one registry: added, removed and continued by new versions."""

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from serve.observability.metrics import NO_MODEL, ServiceMetrics


def series(metrics: ServiceMetrics, model: str) -> dict[str, float]:
    """Returns the series of a model by name, parsed from the text of a scrape."""
    families = list(text_string_to_metric_families(generate_latest(metrics.registry).decode()))
    assert len({family.name for family in families}) == len(families), "a family stands there twice"
    return {
        sample.name.removeprefix("dragoman_"): sample.value
        for family in families
        for sample in family.samples
        if sample.labels.get("model") == model
    }


def test_a_counter_is_one_series_for_each_of_its_labels() -> None:
    """Creation times are not exposed."""
    metrics = ServiceMetrics()
    metrics.of_model("a")
    assert [name for name in series(metrics, "a") if name.endswith("_created")] == []


def test_models_share_families_and_not_series() -> None:
    metrics = ServiceMetrics()
    for slots, name in enumerate(("a", "b"), start=3):
        metrics.of_model(name).set_limits(slots=slots, queue_limit=9)
    assert (series(metrics, "a")["slots"], series(metrics, "b")["slots"]) == (3, 4)


def test_a_model_that_goes_takes_all_of_its_series_along() -> None:
    metrics = ServiceMetrics()
    before = generate_latest(metrics.registry)
    metrics.of_model("a").set_info({"precision": "fp32"})
    assert series(metrics, "a")
    metrics.forget("a")
    assert generate_latest(metrics.registry) == before


def test_the_next_version_of_a_model_goes_on_counting() -> None:
    metrics = ServiceMetrics()
    metrics.of_model("a").observe_padding(2)
    metrics.of_model("a").observe_padding(3)
    assert series(metrics, "a")["padding_tokens_total"] == 5


def test_a_model_that_comes_back_while_it_is_forgotten_is_seen() -> None:
    metrics = ServiceMetrics()
    metrics.of_model("a")
    back = metrics.of_model("a")
    metrics.forget("a")
    metrics.keep("a", back)
    back.observe_padding(3)
    assert series(metrics, "a")["padding_tokens_total"] == 3


def test_while_two_versions_run_their_load_adds_up() -> None:
    metrics = ServiceMetrics()
    old = metrics.of_model("a")
    old.set_load(waiting=1, running=2, running_rows=4)
    new = metrics.of_model("a")
    new.set_load(waiting=0, running=3, running_rows=3)
    assert (series(metrics, "a")["sequences_running"], series(metrics, "a")["rows_running"]) == (5, 7)
    old.set_load(waiting=0, running=0, running_rows=0)
    assert (series(metrics, "a")["sequences_running"], series(metrics, "a")["sequences_waiting"]) == (3, 0)
    assert series(metrics, "a")["sequences_running_peak"] == 3


def test_a_request_is_counted_by_its_model() -> None:
    metrics = ServiceMetrics()
    metrics.of_model("a")
    for model in ("a", NO_MODEL, "gone"):
        metrics.start_request()
        metrics.finish_request(model, "grpc", "translate", "ok", 0.1)
    labels = {"protocol": "grpc", "method": "translate", "outcome": "ok"}
    counts = [
        metrics.registry.get_sample_value("dragoman_requests_total", {"model": model, **labels})
        for model in ("a", NO_MODEL)
    ]
    assert counts == [1, 2]
    assert metrics.registry.get_sample_value("dragoman_inflight_requests") == 0


def test_a_reload_is_counted_by_its_outcome_and_tells_what_failed_last() -> None:
    metrics = ServiceMetrics()

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"dragoman_{name}", labels)

    assert (value("reloads_total", outcome="ok"), value("reloads_total", outcome="failed")) == (0, 0)
    metrics.observe_reload(2)
    assert (value("reloads_total", outcome="failed"), value("reload_failed_models")) == (1, 2)
    metrics.observe_reload(0)
    assert (value("reloads_total", outcome="ok"), value("reload_failed_models")) == (1, 0)
