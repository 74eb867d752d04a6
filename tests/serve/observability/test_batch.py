"""Values that are counted together are counted once, in their order, and before a registry is read."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter

from dragoman.serve.observability.batch import BATCH, Batch, Pending


def test_values_are_counted_in_order_when_a_batch_is_full_or_at_a_flush() -> None:
    counted = list[Sequence[int]]()
    pending = Pending[int](counted.append)
    pending.flush()
    assert counted == []
    for value in range(BATCH + 2):
        pending.add(value)
    assert counted == [list(range(BATCH))]
    pending.flush()
    pending.flush()
    assert counted[1:] == [[BATCH, BATCH + 1]]


def test_what_was_added_before_a_scrape_is_in_it() -> None:
    registry = CollectorRegistry()
    batch = Batch[int](registry, lambda values: seen.inc(sum(values)))
    seen = Counter("seen", "Values.", registry=registry)
    batch.add(2)
    batch.add(3)
    assert registry.get_sample_value("seen_total") == 5
