"""Translates the jobs of a store in the background, several at once, until it is stopped."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from typing import Protocol, TypeVar

import structlog

from dragoman.serve.documents.document import DocumentError, DocumentRequest
from dragoman.serve.documents.job import Job, JobStatus
from dragoman.serve.documents.job_store import Claim, Progress
from dragoman.serve.documents.jobs import DocumentJobs
from dragoman.serve.documents.reader import DocumentText
from dragoman.serve.documents.translation import TranslateParts, translate_segments
from dragoman.serve.errors import DrainingError, RateLimitedError, ServiceError
from dragoman.serve.host.state import largest_share
from dragoman.serve.host.threads import DOCUMENTS
from dragoman.serve.sandbox.sandbox import ParserUnavailableError

# Jobs of one process that are translated at once: small documents pass a large one.
MAX_RUNNING = 4
# A client with too many requests waits at least this long for its next attempt, which parses a document again.
MIN_WAIT_SECONDS = 5.0
# Texts of a document: garbage collections, which stop all threads, traverse each of them.
MAX_TEXTS = 250_000
# Another process may have created a job, or died with one.
POLL_SECONDS = 1.0
RENEW_SECONDS = 1.0
SWEEP_SECONDS = 60.0

_log = structlog.get_logger("dragoman")
T = TypeVar("T")


class DocumentTranslator(Protocol):
    """Translates segments with less priority than the requests of clients."""

    @property
    def in_flight(self) -> int:
        """The number of segments of a job that are translated at once."""

    def begin(self, job: Job, document: DocumentText) -> AbstractAsyncContextManager[TranslateParts]:
        """Yields a function that translates segments of a job; the texts count for its key if the block succeeds.

        Raises:
            RateLimitedError: if the key has too many requests now. The job waits.
            ServiceError: if the job cannot be translated. The function raises it too.
        """


class JobWorker:
    """Claims jobs and translates them while it runs; clients may read them also while it does not.

    An owner of jobs, which counts as one client, takes at most half of the capacity that other owners leave. `others`
    run while the worker runs.
    """

    def __init__(self, jobs: DocumentJobs, translator: DocumentTranslator, count: Callable[[str], object]) -> None:
        """Creates the worker; `count` is called with the final status of each job."""
        self.jobs = jobs
        self._translator = translator
        self._count = count
        self.others: list[Callable[[], Coroutine[None, None, None]]] = [self._sweep]
        self._task: asyncio.Task[None] | None = None
        self._running = dict[asyncio.Task[None], str]()  # the owner of each job

    def start(self) -> None:
        """Translates jobs from now on."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Gives unfinished jobs back, for another process or for the next start. May be called again."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        others = [asyncio.create_task(run()) for run in self.others]
        try:
            while True:
                await self._claim_all()
                await self._wait()
        finally:
            tasks = (*others, *self._running)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _claim_all(self) -> None:
        self.jobs.created.clear()
        while len(self._running) < MAX_RUNNING:
            claim = await self._claim()
            if claim is None:
                return
            task = asyncio.create_task(self._work(claim))
            self._running[task] = claim.owner
            task.add_done_callback(self._running.pop)

    def _full_owners(self) -> list[str]:
        """Returns the owners that must not have one more running job."""
        counts, running = Counter(self._running.values()), len(self._running)
        return [owner for owner, own in counts.items() if own >= largest_share(MAX_RUNNING, running - own, first=False)]

    async def _claim(self) -> Claim | None:
        claiming = asyncio.create_task(_attempt("claim", self.jobs.store.claim, self._full_owners()))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            # The thread goes on and may claim a job.
            claim = await claiming
            if claim is not None:
                await self._release(claim)
            raise

    async def _release(self, claim: Claim, wait_seconds: float = 0.0) -> None:
        """Gives a job back, also if this call is canceled; jobs of its owner then wait for a while."""
        releasing = asyncio.create_task(_attempt("release", self.jobs.store.release, claim, wait_seconds))
        try:
            await asyncio.shield(releasing)
        except asyncio.CancelledError:
            await releasing
            raise

    async def _wait(self) -> None:
        """Waits until there may be a job to claim."""
        created = asyncio.create_task(self.jobs.created.wait())
        full = len(self._running) >= MAX_RUNNING
        try:
            await asyncio.wait(
                self._running if full else (created, *self._running),
                timeout=None if full else POLL_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            created.cancel()

    async def _sweep(self) -> None:
        while True:
            await _attempt("sweep", self.jobs.store.sweep)
            await asyncio.sleep(SWEEP_SECONDS)

    async def _work(self, claim: Claim) -> None:
        run = _Run(claim, self.jobs, self._translator)
        try:
            status = await run.complete()
        except asyncio.CancelledError:
            await self._release(claim)
            raise
        except (DrainingError, ParserUnavailableError):
            await self._release(claim)
            # Without a pause, this worker would claim the job again and again.
            await asyncio.sleep(POLL_SECONDS)
            return
        except RateLimitedError as error:
            await self._release(claim, max(MIN_WAIT_SECONDS, error.retry_after_seconds))
            return
        if status is not None:
            self._count(status)
            _log.info("document", status=status, characters=run.progress.characters, segments=run.progress.segments)


class _Run:
    """The translation of one claimed job."""

    def __init__(self, claim: Claim, jobs: DocumentJobs, translator: DocumentTranslator) -> None:
        self.progress = Progress()
        self._claim = claim
        self._store, self._reader = jobs.store, jobs.reader
        self._translator = translator
        self._unpacked_bytes = jobs.limits.unpacked_bytes
        self._ending = False

    async def complete(self) -> JobStatus | None:
        """Returns the final status; None: another process has the job, or it was deleted.

        Raises:
            DrainingError: if the server stops.
            RateLimitedError: if the client has too many requests now.
            ParserUnavailableError: if documents cannot be read now.
        """
        working = asyncio.create_task(self._translate())
        try:
            while True:
                await asyncio.wait((working,), timeout=RENEW_SECONDS)
                if working.done():
                    return working.result()
                held = await _attempt("renew", self._store.renew, self._claim, self.progress)
                if held is False and not self._ending:
                    return None
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    async def _translate(self) -> JobStatus | None:
        try:
            data = await self._translated()
        except (DrainingError, ParserUnavailableError, RateLimitedError):
            raise
        except (DocumentError, ServiceError) as error:
            return await self._fail(str(error))
        except Exception:  # noqa: BLE001 - logged with its traceback; the client learns that its job failed
            _log.exception("document_failed")
            return await self._fail("internal error, see the log of the server")
        self._ending = True
        held = await _attempt("finish", self._store.finish, self._claim, self.progress, data)
        return JobStatus.DONE if held else None

    async def _fail(self, problem: str) -> JobStatus | None:
        self._ending = True
        held = await _attempt("fail", self._store.fail, self._claim, problem)
        return JobStatus.FAILED if held else None

    async def _translated(self) -> bytes:
        job = self._claim.job
        request = DocumentRequest(
            source=job.source_language,
            target=job.target_language,
            unpacked_bytes=self._unpacked_bytes,
            max_texts=MAX_TEXTS,
            **job.options.of_document,
        )
        source = await DOCUMENTS.run(self._store.read_source, self._claim)
        read = await self._reader.parse(job.name, source, request)
        # The translation takes minutes: meanwhile the document is only on disk.
        del source
        self.progress = Progress(read.parts, 0, read.characters)

        def report() -> None:
            self.progress = Progress(read.parts, self.progress.translated + 1, read.characters)

        async with self._translator.begin(job, read) as translate:
            translations = await translate_segments(read.segments, translate, self._translator.in_flight, report)
            source = await DOCUMENTS.run(self._store.read_source, self._claim)
            return await self._reader.write(job.name, source, request, translations)


async def _attempt(what: str, function: Callable[..., T], *args: object) -> T | None:
    """Calls a method of the store in a thread; logs a failure, as of a full disk, and returns None.

    The job is then claimed again once the claim has expired.
    """
    try:
        return await DOCUMENTS.run(function, *args)
    except Exception as error:  # noqa: BLE001 - the next call may succeed
        # The text of a database error has the keys of jobs.
        _log.warning("document_store_failed", during=what, problem=type(error).__name__)
        return None
