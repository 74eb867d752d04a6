"""Metrics of several processes are those of one service."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from dragoman.serve.observability.merged_metrics import MergedMetrics, snapshot


class Process:
    """A process with one instrument of each kind."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("dragoman_requests", "Requests.", ("model",), registry=self.registry)
        self.seconds = Histogram("dragoman_seconds", "Times.", registry=self.registry, buckets=(1.0, 2.0))
        self.running = Gauge("dragoman_sequences_running", "Running.", registry=self.registry)
        self.oldest = Gauge("dragoman_queue_oldest_seconds", "Oldest.", registry=self.registry)
        self.ready = Gauge("dragoman_ready", "Ready.", registry=self.registry)
        ProcessCollector(registry=self.registry)


def values(merged: MergedMetrics) -> dict[str, float]:
    """Returns the value of each series, by name and labels."""
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in merged.collect()
        for sample in family.samples
    }


def merge(*processes: Process) -> MergedMetrics:
    merged = MergedMetrics()
    for number, process in enumerate(processes):
        merged.update(number, str(number), snapshot(process.registry))
    return merged


def test_counters_histograms_and_loads_add_up() -> None:
    first, second = Process(), Process()
    for process, count in ((first, 2), (second, 5)):
        process.requests.labels("a").inc(count)
        process.seconds.observe(count)
        process.running.set(count)
    found = values(merge(first, second))
    assert found["dragoman_requests_total[('model', 'a')]"] == 7
    assert found["dragoman_seconds_count[]"] == 2
    assert found["dragoman_seconds_sum[]"] == 7
    assert found["dragoman_seconds_bucket[('le', '2.0')]"] == 1
    assert found["dragoman_sequences_running[]"] == 7


def test_the_oldest_wait_is_the_largest_and_readiness_the_smallest() -> None:
    first, second = Process(), Process()
    first.oldest.set(3)
    second.oldest.set(1)
    first.ready.set(1)
    found = values(merge(first, second))
    assert (found["dragoman_queue_oldest_seconds[]"], found["dragoman_ready[]"]) == (3, 0)


def test_counters_do_not_fall_when_a_process_ends_and_its_loads_disappear() -> None:
    first, second = Process(), Process()
    for process in (first, second):
        process.requests.labels("a").inc(3)
        process.seconds.observe(1)
        process.running.set(4)
    merged = merge(first, second)
    merged.end(0)
    successor = Process()
    successor.requests.labels("a").inc()
    merged.update(2, "0", snapshot(successor.registry))
    found = values(merged)
    assert found["dragoman_requests_total[('model', 'a')]"] == 7
    assert found["dragoman_seconds_count[]"] == 2
    assert found["dragoman_sequences_running[]"] == 4


def test_a_forgotten_model_loses_the_counts_of_ended_processes() -> None:
    first, second = Process(), Process()
    first.requests.labels("a").inc(3)
    merged = merge(first, second)
    merged.end(0)
    merged.forget("a")
    second.requests.labels("a").inc()
    merged.update(1, "1", snapshot(second.registry))
    assert values(merged)["dragoman_requests_total[('model', 'a')]"] == 1


def test_the_series_of_processes_are_as_many_as_the_numbers() -> None:
    merged = merge(Process(), Process())
    for process_id in range(2, 20):
        merged.end(process_id - 1)
        merged.update(process_id, "1", snapshot(Process().registry))
    memory = [value for value in values(merged) if value.startswith("process_resident_memory_bytes")]
    assert memory == [f"process_resident_memory_bytes[('process', '{number}')]" for number in range(2)]
