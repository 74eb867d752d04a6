"""Tallies: every request is counted once, and parts add up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.clients import OK
from loadtest.scenario import LoadRequest
from loadtest.tally import Bound, Sample, Tally

REQUEST = LoadRequest(("One.", "Two."))


def tally_of(samples: list[Sample], bound: Bound | None = None) -> Tally:
    tally = Tally()
    for sample in samples:
        tally.sent += 1
        tally.record(sample, bound or Bound())
    return tally


def sample(latency_seconds: float, outcome: str = OK, first_seconds: float | None = None) -> Sample:
    return Sample(REQUEST, 1.0, 1.0, 1.0 + latency_seconds, outcome, first_seconds)


samples = st.builds(
    sample, st.floats(0.0, 5.0), st.sampled_from([OK, "DEADLINE_EXCEEDED", "429 queue_full", "timeout"])
)


@given(st.lists(samples, max_size=30))
def test_every_request_is_counted_once(samples: list[Sample]) -> None:
    tally = tally_of(samples)
    assert tally.sent == tally.ended == len(samples)
    assert tally.latency.count == tally.ok == sum(each.ok for each in samples)


@given(st.lists(st.lists(samples, max_size=10), max_size=3))
def test_packed_parts_add_up_to_the_whole(parts: list[list[Sample]]) -> None:
    total = Tally()
    for part in parts:
        total.add_packed(tally_of(part).pack())
    whole = tally_of([each for part in parts for each in part])
    assert (total.sent, total.outcomes, total.texts, total.last_seconds) == (
        whole.sent,
        whole.outcomes,
        whole.texts,
        whole.last_seconds,
    )
    assert total.latency.percentiles() == whole.latency.percentiles()
    assert total.lag.percentiles() == whole.lag.percentiles()


def test_latencies_are_those_of_answered_requests() -> None:
    tally = tally_of([sample(0.2), sample(9.0, "timeout")])
    assert tally.latency.percentile(100) == pytest.approx(0.2, rel=0.001)
    assert tally.texts == 2


def test_an_answer_at_the_bound_is_good_and_a_later_one_is_not() -> None:
    assert tally_of([sample(0.5), sample(0.51), sample(0.1, "timeout")], Bound(0.5)).good == 1


def test_a_stream_is_good_only_if_its_first_part_comes_in_time() -> None:
    early, late = sample(0.4, first_seconds=1.1), sample(0.4, first_seconds=1.3)
    assert tally_of([early, late, sample(0.4)], Bound(0.5, 0.2)).good == 2
