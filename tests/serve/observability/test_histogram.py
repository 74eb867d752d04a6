"""A histogram in batches shows what the library's shows, whenever it is read and from however many threads."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from dragoman.serve.observability.batch import BATCH, BatchedHistogram

BUCKETS = (0.5, 1.0, 4.0)
VALUES = st.sampled_from((0.0, 0.5, 0.75, 1.0, 3.5, 4.0, 4.5, 1e9, math.inf))


@given(values=st.lists(VALUES, max_size=9), repeated=st.sampled_from((0, 1, BATCH, 2 * BATCH + 3)))
def test_samples_are_those_of_the_library_at_any_time(values: list[float], repeated: int) -> None:
    pages = []
    for kind in (Histogram, BatchedHistogram):
        registry = CollectorRegistry()
        children = kind("seconds", "Time.", ("model",), registry=registry, buckets=BUCKETS)
        for value in (*values, *[0.75] * repeated):
            children.labels("a").observe(value)
        children.labels("b").observe(0.25)
        pages.append((generate_latest(registry), generate_latest(registry)))
    assert pages[0] == pages[1]


def test_no_observation_is_lost_or_counted_twice_between_threads() -> None:
    registry = CollectorRegistry()
    histogram = BatchedHistogram("seconds", "Time.", registry=registry, buckets=BUCKETS)

    def observe(_: int) -> None:
        for _ in range(1000):
            histogram.observe(2.0)
            registry.get_sample_value("seconds_count")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(observe, range(4)))
    assert registry.get_sample_value("seconds_count") == 4000
    assert registry.get_sample_value("seconds_sum") == 8000.0
    assert registry.get_sample_value("seconds_bucket", {"le": "4.0"}) == 4000


def test_exemplars_are_refused() -> None:
    histogram = BatchedHistogram("seconds", "Time.", registry=CollectorRegistry())
    with pytest.raises(ValueError, match="exemplar"):
        histogram.observe(1.0, {"trace_id": "1"})
