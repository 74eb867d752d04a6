"""The worker of jobs: translates, reports failures, and gives back what it cannot finish."""

import asyncio
import threading
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from dragoman.serve import errors
from dragoman.serve.documents import job_worker
from dragoman.serve.documents.document import Segment
from dragoman.serve.documents.job import Job, JobLimits, JobOptions, JobStatus
from dragoman.serve.documents.job_store import Claim, JobStore
from dragoman.serve.documents.job_worker import JobWorker
from dragoman.serve.documents.jobs import DocumentJobs, safe_name
from dragoman.serve.documents.reader import DocumentReader, DocumentText
from dragoman.serve.documents.translation import TranslateParts
from dragoman.serve.host.state import State
from dragoman.serve.sandbox import host
from dragoman.serve.sandbox.sandbox import MAX_TRIES, Sandbox
from tests.support.live import eventually

LIMITS = JobLimits(document_bytes=10_000, unpacked_bytes=10_000, jobs=20, store_bytes=100_000, keep_seconds=1000.0)
pytestmark = pytest.mark.anyio
FINAL = (JobStatus.DONE, JobStatus.FAILED)


@dataclass
class Capitals:
    """Translates into capitals.

    Attributes:
        gate: segments wait for it.
        failure: raised in place of each translation.
        limited: names of documents whose client has too many requests.
    """

    in_flight: int = 2
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    failure: Exception | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    limited: set[str] = field(default_factory=set)

    @asynccontextmanager
    async def begin(self, job: Job, _document: DocumentText) -> AsyncIterator[TranslateParts]:
        self.begun.set()
        if job.name in self.limited:
            raise errors.RateLimitedError("the API key has used its requests of this minute", 60)

        async def translate(segments: Sequence[Segment]) -> list[str]:
            await self.gate.wait()
            if self.failure is not None:
                raise self.failure
            return [segment.text.upper() for segment in segments]

        yield translate


@dataclass
class Bench:
    """A store with a worker that can be started."""

    store: JobStore
    jobs: DocumentJobs
    reader: DocumentReader
    translator: Capitals
    counted: list[str] = field(default_factory=list)
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    def start(self) -> "asyncio.Task[None]":
        """Starts a worker, which runs until the test ends or `stop`."""
        worker = JobWorker(self.jobs, self.translator, self.counted.append)
        self.tasks.append(asyncio.create_task(worker._run()))
        return self.tasks[-1]

    async def create(self, text: str = "one\ntwo\n", name: str = "a.txt", owner: str = "") -> Job:
        return await self.jobs.create(name, text.encode(), "en", "de", owner=owner)

    async def wait(self, job: Job, *statuses: JobStatus) -> Job:
        for _ in range(3000):
            if (found := await self.jobs.get(job.id)).status in statuses:
                return found
            await asyncio.sleep(0.02)
        raise AssertionError(f"the job is still {found.status}")

    async def wait_counted(self, *statuses: str) -> None:
        """Waits until jobs are counted, which is after their end."""
        for _ in range(3000):
            if self.counted == list(statuses):
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"counted {self.counted}")


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(job_worker, "RENEW_SECONDS", 0.02)
    monkeypatch.setattr(job_worker, "POLL_SECONDS", 0.05)
    state, sandbox = State(tmp_path), Sandbox()
    store, reader = JobStore(state, LIMITS), DocumentReader(sandbox, LIMITS)
    bench = Bench(store, DocumentJobs(store, LIMITS, reader), reader, Capitals())
    yield bench
    for task in bench.tasks:
        await stop(task)
    sandbox.close()
    state.close()


async def stop(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_document_is_translated_with_progress(bench: Bench) -> None:
    bench.start()
    job = await bench.create("one\ntwo\none\n")
    await bench.wait(job, JobStatus.TRANSLATING)
    bench.translator.gate.set()
    done = await bench.wait(job, *FINAL)
    assert (done.status, done.segments, done.translated, done.characters) == (JobStatus.DONE, 2, 2, 9)
    result = await bench.jobs.result(job.id)
    with result.file as file:
        assert (result.name, file.read(), result.size_bytes) == ("a.de.txt", b"ONE\nTWO\nONE\n", 12)
    await bench.wait_counted("done")


@pytest.mark.parametrize("target", ["DE", "German", " de "])
async def test_a_document_names_its_language_by_the_code(target: str, bench: Bench) -> None:
    bench.start()
    bench.translator.gate.set()
    job = await bench.jobs.create("a.arb", b'{"@@locale": "en", "b": "c"}', "English", target)
    assert (job.source_language, job.target_language) == ("en", "de")
    await bench.wait(job, *FINAL)
    result = await bench.jobs.result(job.id)
    with result.file as file:
        assert (result.name, file.read()) == ("a.de.arb", b'{"@@locale": "de", "b": "C"}')


async def test_a_document_of_one_long_text_has_progress(bench: Bench) -> None:
    bench.start()
    bench.translator.gate.set()
    done = await bench.wait(await bench.create("A dog runs. " * 500), *FINAL)
    assert done.segments > 5
    assert done.translated == done.segments


@pytest.mark.parametrize(
    ("name", "text", "failure", "error"),
    [
        ("a.json", "{", None, "not JSON"),
        ("a.txt", "a", errors.InvalidRequestError("text", "too long"), "text: too long"),
        ("a.txt", "a", ValueError("secret"), "internal error, see the log of the server"),
    ],
)
async def test_a_job_that_fails_says_why(
    bench: Bench, name: str, text: str, failure: Exception | None, error: str
) -> None:
    bench.translator.failure = failure
    bench.translator.gate.set()
    bench.start()
    failed = await bench.wait(await bench.create(text, name), *FINAL)
    assert failed.status is JobStatus.FAILED
    assert failed.error.startswith(error)
    await bench.wait_counted("failed")


async def test_a_worker_that_stops_gives_its_jobs_back_and_another_one_does_them_again(bench: Bench) -> None:
    working = bench.start()
    job = await bench.create()
    await bench.wait(job, JobStatus.TRANSLATING)
    await stop(working)
    assert (await bench.jobs.get(job.id)).status is JobStatus.QUEUED
    bench.translator.gate.set()
    bench.start()
    await bench.wait(job, JobStatus.DONE)
    await bench.wait_counted("done")


async def test_a_worker_that_stops_while_it_claims_gives_the_job_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    claiming, gate, claim = threading.Event(), threading.Event(), bench.store.claim

    def claim_slowly(excluded: Collection[str]) -> Claim | None:
        claiming.set()
        gate.wait()
        return claim(excluded)

    job = await bench.create()
    monkeypatch.setattr(bench.store, "claim", claim_slowly)
    working = bench.start()
    await asyncio.to_thread(claiming.wait)
    working.cancel()
    gate.set()
    await stop(working)
    assert (await bench.jobs.get(job.id)).status is JobStatus.QUEUED


async def test_the_worker_goes_on_after_a_failure_of_the_database(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, failures = bench.store.claim, [OperationalError("", {}, ValueError()), OSError()]

    def fail_first(excluded: Collection[str]) -> Claim | None:
        if failures:
            raise failures.pop()
        return claim(excluded)

    monkeypatch.setattr(bench.store, "claim", fail_first)
    bench.translator.gate.set()
    bench.start()
    await bench.wait(await bench.create(), JobStatus.DONE)


async def test_a_server_that_drains_gives_a_job_back(bench: Bench) -> None:
    job = await bench.create()
    bench.translator.failure = errors.DrainingError("shutting down")
    bench.translator.gate.set()
    working = bench.start()
    await bench.translator.begun.wait()
    await stop(working)
    assert (await bench.jobs.get(job.id)).status is JobStatus.QUEUED
    assert bench.counted == []


async def test_a_document_waits_while_no_parser_can_start(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_worker, "POLL_SECONDS", 0.01)
    bench.translator.gate.set()
    job = bench.store.add("a.txt", b"one\n", "en", "de", JobOptions())
    with monkeypatch.context() as patch, capture_logs() as lines:
        patch.setattr(host, "_OPTIONS", ("-c", "raise SystemExit(7)"))
        bench.start()
        # More tries than a document has attempts.
        await asyncio.to_thread(eventually, lambda: len(lines) >= 4 * MAX_TRIES)
        assert {line["event"] for line in lines} == {"parsers_ended"}
        assert (await bench.jobs.get(job.id)).status not in FINAL
    await bench.wait(job, JobStatus.DONE)


async def test_small_documents_pass_a_large_one(bench: Bench) -> None:
    bench.start()
    jobs = [await bench.create(owner=f"client {number}") for number in range(job_worker.MAX_RUNNING + 1)]
    for job in jobs[:-1]:
        await bench.wait(job, JobStatus.TRANSLATING)
    assert (await bench.jobs.get(jobs[-1].id)).status is JobStatus.QUEUED
    bench.translator.gate.set()
    await bench.wait(jobs[-1], JobStatus.DONE)


async def test_one_client_leaves_room_for_the_documents_of_others(bench: Bench) -> None:
    """Its documents may take long."""
    bench.start()
    jobs = [await bench.create(owner="first") for _ in range(2 * job_worker.MAX_RUNNING)]
    for job in jobs[: job_worker.MAX_RUNNING // 2]:
        await bench.wait(job, JobStatus.TRANSLATING)
    await bench.wait(await bench.create(owner="second"), JobStatus.TRANSLATING)
    assert (await bench.jobs.get(jobs[-1].id)).status is JobStatus.QUEUED


async def test_a_client_with_too_many_requests_waits_without_holding_up_others(bench: Bench) -> None:
    bench.translator.limited.add("limited.txt")
    bench.translator.gate.set()
    limited = [await bench.create(name="limited.txt", owner="limited") for _ in range(2 * job_worker.MAX_RUNNING)]
    working = bench.start()
    for _ in range(3):
        await bench.wait(await bench.create(owner="other"), JobStatus.DONE)
    for job in limited:
        await bench.wait(job, JobStatus.QUEUED)
    await stop(working)
    assert bench.store.claim() is None


async def test_a_document_that_is_deleted_before_it_is_read_ends_without_an_error(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_source, failures = bench.store.read_source, list[str]()

    def delete_first(claim: Claim) -> bytes:
        if claim.job.name == "deleted.txt":
            bench.store.remove(claim.job.id)
        return read_source(claim)

    monkeypatch.setattr(bench.store, "read_source", delete_first)
    monkeypatch.setattr(job_worker, "_log", SimpleNamespace(exception=failures.append, info=lambda *_, **__: None))
    bench.translator.gate.set()
    await bench.create(name="deleted.txt")
    other = await bench.create()
    working = bench.start()
    await bench.wait(other, JobStatus.DONE)
    await bench.wait_counted("done")
    await stop(working)
    assert failures == []


async def test_a_deleted_document_ends_its_translation(bench: Bench) -> None:
    bench.start()
    jobs = [await bench.create(owner=f"client {number}") for number in range(job_worker.MAX_RUNNING + 1)]
    for job in jobs[:-1]:
        await bench.wait(job, JobStatus.TRANSLATING)
    await bench.jobs.delete(jobs[0].id)
    await bench.wait(jobs[-1], JobStatus.TRANSLATING)


@pytest.mark.parametrize(
    ("name", "data", "error", "message"),
    [
        ("a.exe", b"x", errors.InvalidRequestError, "name: unknown format"),
        ("", b"x", errors.InvalidRequestError, "name: unknown format"),
        ("a.txt", b"", errors.InvalidRequestError, "file: empty"),
        ("a.txt", b"x" * 10_001, errors.RequestTooLargeError, "file: 10001 bytes, expected at most 10000"),
    ],
)
async def test_a_document_that_cannot_be_translated_is_refused(
    bench: Bench, name: str, data: bytes, error: type[errors.ServiceError], message: str
) -> None:
    with pytest.raises(error, match=message):
        await bench.jobs.create(name, data, "en", "de")


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("../../etc/a.txt", "a.txt"),
        ("C:\\files\\a.txt", "a.txt"),
        ("a\r\nx: y\0.txt", "ax: y.txt"),
        (" Übung.txt ", "Übung.txt"),
        (f"{'a' * 300}.txt", f"{'a' * 200}.txt"),
    ],
)
def test_a_name_has_neither_folders_nor_control_characters(name: str, safe: str) -> None:
    assert safe_name(name) == safe
