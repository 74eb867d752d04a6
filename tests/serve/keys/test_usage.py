"""Counts of several processes: quotas are never exceeded, and a repeated write counts once; on both databases."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from dragoman.serve.host.state import State
from dragoman.serve.keys.usage import LOST_AFTER_SECONDS, SLOTS_LOST_AFTER_SECONDS, Counted, UsageStore

KEY, START = "key", 0


def counted(used: int = 0, held: int = 0) -> Counted:
    return Counted(KEY, START, used, held)


@pytest.fixture
def processes(state: State) -> list[UsageStore]:
    return [UsageStore(state, name) for name in "abcd"]


def test_leases_of_all_processes_together_fit_into_the_quota(processes: list[UsageStore]) -> None:
    def lease_all(process: UsageStore) -> int:
        held = 0
        while granted := process.lease(counted(held=held), 50, 3, 1000):
            assert granted >= 3
            held += granted
        return held

    with ThreadPoolExecutor(4) as threads:
        held = list(threads.map(lease_all, processes))
    assert 1000 - 3 < sum(held) <= 1000
    assert max(processes[0].lease(counted(held=held[0]), 2, 1, 1000), 0) <= 1000 - sum(held)


def test_a_lease_is_whole_or_none(processes: list[UsageStore]) -> None:
    first, second, *_ = processes
    assert first.lease(counted(), 60, 60, 100) == 60
    assert second.lease(counted(), 60, 41, 100) == 0
    assert second.lease(counted(), 60, 40, 100) == 40
    assert second.lease(counted(held=40), 5, 1, None) == 5


def test_portions_shrink_near_the_end_of_a_quota(processes: list[UsageStore]) -> None:
    first, *_ = processes
    assert first.lease(counted(), 100, 1, 1600) == 100
    assert first.lease(counted(used=1520, held=0), 100, 1, 1600) == 10


def test_a_repeated_write_counts_once(processes: list[UsageStore]) -> None:
    first, second, *_ = processes
    for _ in range(2):
        first.write([counted(used=30, held=20)], {})
        second.write([counted(used=7)], {})
    assert second.used(KEY, START, 7) == 37
    for _ in range(2):
        first.close([counted(used=31)])
    assert second.used(KEY, START, 7) == 38
    assert second.lease(counted(used=7), 62, 62, 100) == 62  # what the first process held is free again


def test_what_a_lost_process_held_counts_as_used(processes: list[UsageStore], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, *_ = processes
    first.write([counted(used=30, held=20)], {})
    assert second.used(KEY, START) == 30
    now_seconds = time.time()
    monkeypatch.setattr("dragoman.serve.keys.usage.time.time", lambda: now_seconds + LOST_AFTER_SECONDS + 1)
    assert second.used(KEY, START) == 50
    assert second.lease(counted(), 50, 51, 100) == 0


def test_requests_of_a_minute_are_shared_and_the_next_minute_is_new(processes: list[UsageStore]) -> None:
    first, second, *_ = processes
    assert [process.count_requests(KEY, 8, 4, 10) for process in (first, second, first, second)] == [4, 4, 2, 0]
    assert first.count_requests(KEY, 9, 4, 10) == 4


def test_keys_and_periods_are_counted_apart(processes: list[UsageStore]) -> None:
    first, *_ = processes
    first.write([Counted("one", 0, 1, 0), Counted("two", 0, 2, 0), Counted("one", 9, 4, 0)], {})
    others = processes[1]
    assert [others.used(*item) for item in (("one", 0), ("two", 0), ("one", 9), ("three", 0))] == [1, 2, 4, 0]


def test_requests_at_once_of_a_lost_process_are_free_again(
    processes: list[UsageStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, other, now_seconds = *processes[:2], time.time()
    assert [lost.lease_slot(KEY, 0, 2), lost.lease_slot(KEY, 1, 2), other.lease_slot(KEY, 0, 2)] == [True, True, False]
    lost.write([], {KEY: 1})
    assert other.lease_slot(KEY, 0, 2)
    assert not other.lease_slot(KEY, 1, 2)
    monkeypatch.setattr("dragoman.serve.keys.usage.time.time", lambda: now_seconds + SLOTS_LOST_AFTER_SECONDS + 1)
    assert other.lease_slot(KEY, 1, 2)
