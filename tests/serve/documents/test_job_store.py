"""The store of jobs: processes share it, a job runs once, and nothing is lost when a worker dies."""

import errno
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from dragoman.serve.documents.job import Job, JobLimits, JobOptions, JobStatus
from dragoman.serve.documents.job_store import CLAIM_SECONDS, FOLDER, MAX_ATTEMPTS, Claim, JobStore, Progress
from dragoman.serve.errors import DocumentNotFoundError, DocumentNotReadyError, DocumentStoreFullError, StorageFullError
from dragoman.serve.host.state import State
from tests.support.fakes import FakeClock
from tests.support.full_disk import fill_database

LIMITS = JobLimits(document_bytes=100, unpacked_bytes=100, jobs=20, store_bytes=10_000, keep_seconds=1000.0)
DONE = Progress(2, 2, 10)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1e9)


@pytest.fixture
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[State]:
    """SQLite, or the database of the fixture `state_url` in tests that ask for it."""
    url = request.getfixturevalue("state_url") if "state_url" in request.fixturenames else None
    state = State(tmp_path, url)
    yield state
    state.close()


@pytest.fixture
def store(state: State, clock: FakeClock) -> JobStore:
    return JobStore(state, LIMITS, clock)


def add(store: JobStore, data: bytes = b"text", owner: str = "") -> Job:
    return store.add("a.txt", data, "en", "de", JobOptions(allow_pivot=True), owner=owner)


def result_of(store: JobStore, job: Job) -> bytes:
    with store.open_result(job.id)[1] as file:
        return file.read()


def claim_of(store: JobStore) -> Claim:
    claim = store.claim()
    assert claim is not None
    return claim


def files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / FOLDER).iterdir())


def test_a_job_survives_a_restart(tmp_path: Path, state_url: str | None, store: JobStore, clock: FakeClock) -> None:
    job = add(store)
    state = State(tmp_path, state_url)
    again = JobStore(state, LIMITS, clock)
    assert again.find(job.id) == job
    claim = claim_of(again)
    assert claim.job == replace(job, status=JobStatus.TRANSLATING)
    assert again.read_source(claim) == b"text"
    state.close()


def test_each_job_is_claimed_once_however_many_processes_claim(
    tmp_path: Path, state_url: str | None, store: JobStore, clock: FakeClock
) -> None:
    ids = {add(store).id for _ in range(10)}

    def claim_all() -> list[str]:
        state = State(tmp_path, state_url)
        other = JobStore(state, LIMITS, clock)
        claims = [other.claim() for _ in range(10 + 5)]
        state.close()
        return [claim.job.id for claim in claims if claim is not None]

    with ThreadPoolExecutor(4) as threads:
        claimed = [item for future in [threads.submit(claim_all) for _ in range(4)] for item in future.result()]
    assert sorted(claimed) == sorted(ids)


def test_the_owner_with_the_fewest_running_jobs_comes_first_with_its_oldest_job(
    store: JobStore, clock: FakeClock
) -> None:
    jobs = []
    for owner in ("a", "a", "a", "b", "b"):
        jobs.append(add(store, owner=owner).id)
        clock.seconds += 1
    assert [jobs.index(claim_of(store).job.id) for _ in range(4)] == [0, 3, 1, 4]


def test_the_jobs_of_an_excluded_owner_wait(store: JobStore) -> None:
    add(store, owner="a")
    assert store.claim(["a"]) is None
    assert claim_of(store).owner == "a"


@pytest.mark.usefixtures("state_url")
def test_jobs_that_are_given_back_for_a_time_wait_with_those_of_their_owner(store: JobStore, clock: FakeClock) -> None:
    for owner in ("a", "a", "b"):
        add(store, owner=owner)
        clock.seconds += 1
    assert store.release(claim_of(store), 60.0)
    assert claim_of(store).owner == "b"
    assert store.claim() is None
    clock.seconds += 60.0
    assert claim_of(store).owner == "a"


def test_a_claim_that_is_renewed_holds_and_shows_the_progress(store: JobStore, clock: FakeClock) -> None:
    job = add(store)
    claim = claim_of(store)
    for _ in range(3):
        clock.seconds += CLAIM_SECONDS - 1
        assert store.renew(claim, Progress(4, 1, 20))
        assert store.claim() is None
    shown = store.find(job.id)
    assert (shown.status, shown.segments, shown.translated, shown.characters) == (JobStatus.TRANSLATING, 4, 1, 20)


@pytest.mark.usefixtures("state_url")
def test_the_job_of_a_dead_worker_is_done_again_and_only_the_last_claim_counts(
    store: JobStore, clock: FakeClock
) -> None:
    job = add(store)
    dead = claim_of(store)
    clock.seconds += CLAIM_SECONDS
    claim = claim_of(store)
    assert claim.job.id == job.id
    assert not store.renew(dead, DONE)
    assert not store.finish(dead, DONE, b"late")
    assert not store.fail(dead, "late")
    assert not store.release(dead)
    assert store.finish(claim, DONE, b"result")
    assert not store.finish(claim, DONE, b"twice")
    assert result_of(store, job) == b"result"


def test_a_document_that_ends_its_process_several_times_has_failed(store: JobStore, clock: FakeClock) -> None:
    job = add(store)
    for _ in range(MAX_ATTEMPTS):
        assert store.claim() is not None
        store.sweep()
        clock.seconds += CLAIM_SECONDS
    assert store.claim() is None
    store.sweep()
    failed = store.find(job.id)
    assert failed.status is JobStatus.FAILED
    assert failed.error == "the server ended 3 times while it translated the document"


def test_a_job_that_is_given_back_waits_again_and_has_lost_no_attempt(store: JobStore) -> None:
    add(store)
    for _ in range(2 * MAX_ATTEMPTS):
        assert store.release(claim_of(store))


def test_a_result_replaces_its_source_and_other_users_cannot_read_either(tmp_path: Path, store: JobStore) -> None:
    add(store)
    (source,) = files(tmp_path)
    store.finish(claim_of(store), DONE, b"result")
    (result,) = files(tmp_path)
    assert source != result
    assert stat.S_IMODE(result.stat().st_mode) == 0o600
    assert stat.S_IMODE(result.parent.stat().st_mode) == 0o700


def test_a_job_without_a_result_says_why(store: JobStore) -> None:
    job = add(store)
    with pytest.raises(DocumentNotReadyError, match="not translated yet: queued"):
        store.open_result(job.id)
    assert store.fail(claim_of(store), "line 3: malformed")
    with pytest.raises(DocumentNotReadyError, match="line 3: malformed"):
        store.open_result(job.id)


def test_a_deleted_job_is_gone_with_its_files_and_its_worker_notices(tmp_path: Path, store: JobStore) -> None:
    job = add(store)
    claim = claim_of(store)
    store.remove(job.id)
    assert not store.renew(claim, DONE)
    assert not store.finish(claim, DONE, b"result")
    assert files(tmp_path) == []
    with pytest.raises(DocumentNotFoundError):
        store.find(job.id)
    with pytest.raises(DocumentNotFoundError):
        store.remove(job.id)


@pytest.mark.usefixtures("state_url")
def test_an_expired_job_is_gone_at_once_and_its_files_at_the_next_sweep(
    tmp_path: Path, store: JobStore, clock: FakeClock
) -> None:
    job = add(store)
    store.finish(claim_of(store), DONE, b"result")
    clock.seconds += LIMITS.keep_seconds
    with pytest.raises(DocumentNotFoundError):
        store.find(job.id)
    assert store.claim() is None
    store.sweep()
    assert files(tmp_path) == []


@pytest.mark.usefixtures("state_url")
def test_a_job_that_waits_or_is_being_translated_does_not_expire(store: JobStore, clock: FakeClock) -> None:
    job = add(store)
    clock.seconds += 2 * LIMITS.keep_seconds
    store.sweep()
    claim = claim_of(store)
    clock.seconds += 2 * LIMITS.keep_seconds
    store.sweep()
    assert store.find(job.id).status is JobStatus.TRANSLATING
    assert store.finish(claim, DONE, b"result")


def test_a_result_is_kept_from_its_end_on(store: JobStore, clock: FakeClock) -> None:
    job = add(store)
    claim = claim_of(store)
    clock.seconds += LIMITS.keep_seconds - 1
    store.finish(claim, DONE, b"result")
    clock.seconds += LIMITS.keep_seconds - 1
    assert result_of(store, job) == b"result"


def test_files_without_a_job_are_deleted_once_they_are_old(tmp_path: Path, store: JobStore, clock: FakeClock) -> None:
    stray = tmp_path / FOLDER / "stray.source"
    stray.write_bytes(b"x")
    clock.seconds = stray.stat().st_mtime + 60
    store.sweep()
    assert stray.exists()
    clock.seconds += 3600
    store.sweep()
    assert not stray.exists()


@pytest.mark.usefixtures("state_url")
def test_the_number_and_the_size_of_documents_are_bounded(tmp_path: Path, state: State, clock: FakeClock) -> None:
    few = JobStore(state, replace(LIMITS, jobs=2, store_bytes=10), clock)
    add(few, b"12345", "a")
    with pytest.raises(DocumentStoreFullError, match="5 bytes of documents are stored"):
        add(few, b"123456", "b")
    kept = add(few, b"12345", "b")
    with pytest.raises(DocumentStoreFullError, match="2 documents are stored"):
        add(few, b"", "c")
    assert len(files(tmp_path)) == 2
    few.remove(kept.id)
    add(few, b"12345", "c")


@pytest.mark.usefixtures("state_url")
def test_a_client_stores_at_most_half_of_what_others_leave(state: State, clock: FakeClock) -> None:
    small = JobStore(state, replace(LIMITS, jobs=8, store_bytes=80), clock)
    for owner, count in (("a", 4), ("b", 2), ("c", 1), ("d", 1)):
        for _ in range(count):
            add(small, b"x", owner)
        with pytest.raises(DocumentStoreFullError, match=f"{count} of this client"):
            add(small, b"x", owner)


@pytest.mark.usefixtures("state_url")
def test_a_client_stores_at_most_half_of_the_bytes_that_others_leave(state: State, clock: FakeClock) -> None:
    small = JobStore(state, replace(LIMITS, store_bytes=100), clock)
    add(small, b"x" * 40, "a")
    add(small, b"x" * 10, "a")
    with pytest.raises(DocumentStoreFullError, match="50 of this client, expected at most 50 of this client"):
        add(small, b"x", "a")
    add(small, b"x" * 50, "b")


@pytest.mark.parametrize("written", ["source", "database"])
def test_a_full_disk_is_named_and_leaves_no_file(
    tmp_path: Path, state: State, store: JobStore, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    def fill(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if written == "source":
        monkeypatch.setattr(os, "fsync", fill)
    else:
        fill_database(state)
    with pytest.raises(StorageFullError):
        add(store, b"x", "name" * 5000)
    assert files(tmp_path) == []


@pytest.mark.usefixtures("state_url")
def test_a_call_back_is_claimed_once_and_only_the_last_claim_repeats_it(store: JobStore, clock: FakeClock) -> None:
    for host in "ab":
        store.add("a.txt", b"text", "en", "de", JobOptions(), callback=f"https://{host}.test:1/x")
    assert store.claim_callback(()) is None
    assert store.fail(claim_of(store), "wrong")
    assert store.fail(claim_of(store), "wrong")
    first, second = store.claim_callback(["b.test:1"]), store.claim_callback(())
    assert first is not None
    assert second is not None
    assert (first.url, first.attempt, second.host) == ("https://a.test:1/x", 1, "b.test:1")
    store.settle_callback(second, None)
    assert store.claim_callback(()) is None
    clock.seconds += CLAIM_SECONDS
    again = first._replace(attempt=2)
    assert store.claim_callback(()) == again
    for settled, expected in (first, None), (again, first._replace(attempt=3)):
        store.settle_callback(settled, 1.0)
        clock.seconds += 2.0
        assert store.claim_callback(()) == expected
    clock.seconds += LIMITS.keep_seconds
    assert store.claim_callback(()) is None


def test_a_store_of_an_earlier_version_gets_its_new_columns(tmp_path: Path, clock: FakeClock) -> None:
    state = State(tmp_path)
    job = add(JobStore(state, LIMITS, clock))
    with state.writing() as connection:
        for column in ("owner", "callback", "callback_host", "callback_due_seconds", "callback_attempts"):
            connection.execute(text(f"ALTER TABLE documents DROP COLUMN {column}"))
    again = JobStore(state, LIMITS, clock)
    assert again.find(job.id) == job
    claim = claim_of(again)
    assert (claim.owner, again.fail(claim, "wrong"), again.claim_callback(())) == ("", True, None)
    state.close()
