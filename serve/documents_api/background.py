"""The jobs of a server, and the worker that translates them while the server runs."""

import asyncio
from contextlib import suppress

from dragoman.serve.documents.job import JobLimits
from dragoman.serve.documents.job_store import JobStore
from dragoman.serve.documents.job_worker import JobWorker
from dragoman.serve.documents.jobs import DocumentJobs
from dragoman.serve.documents.reader import DocumentReader
from dragoman.serve.documents_api.translator import SegmentTranslator
from dragoman.serve.host.state import State
from dragoman.serve.observability.metrics import ServiceMetrics
from dragoman.serve.sandbox.sandbox import Sandbox
from dragoman.serve.settings import ServeSettings


class BackgroundDocuments:
    """Jobs in the state directory, and their worker in this process.

    Attributes:
        jobs: creates and reads jobs, also while the worker does not run.
    """

    def __init__(
        self,
        state: State,
        settings: ServeSettings,
        translator: SegmentTranslator,
        metrics: ServiceMetrics,
        sandbox: Sandbox,
    ) -> None:
        limits = JobLimits(
            document_bytes=settings.document_max_bytes,
            unpacked_bytes=settings.document_max_unpacked_bytes,
            jobs=settings.documents_max_count,
            store_bytes=settings.documents_max_bytes,
            keep_seconds=settings.documents_keep_seconds,
        )
        store, reader = JobStore(state, limits), DocumentReader(sandbox, limits)
        self.jobs = DocumentJobs(store, limits, reader)
        self._worker = JobWorker(store, self.jobs, reader, translator, metrics.count_document)
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Translates jobs from now on."""
        self._running = asyncio.create_task(self._worker.run())

    async def stop(self) -> None:
        """Gives unfinished jobs back, for another process or for the next start. May be called again."""
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
