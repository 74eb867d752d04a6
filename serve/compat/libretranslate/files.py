"""LibreTranslate's files, over the document jobs of the server."""

import asyncio
import time
from http import HTTPStatus
from pathlib import PurePath

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dragoman.serve.compat.libretranslate.request import find_pair, refuse, required
from dragoman.serve.compat.served_languages import ServedLanguages
from dragoman.serve.documents.document import translated_suffix
from dragoman.serve.documents.formats import FORMATS
from dragoman.serve.documents.job import Job, JobOptions, JobStatus
from dragoman.serve.documents.jobs import JOB_ID_DIGITS, DocumentJobs
from dragoman.serve.documents_api.result import DocumentAnswer
from dragoman.serve.documents_api.translator import DocumentParts, request_for
from dragoman.serve.edge.parameters import Receive
from dragoman.serve.edge.reader import unless_disconnected
from dragoman.serve.errors import DeadlineExceededError, DocumentNotFoundError
from dragoman.serve.observability.logs import RequestRecord

DOWNLOAD = "/download_file"
_POLL_SECONDS = 0.05


class LibreTranslateFiles:
    """Handlers of the routes of files."""

    def __init__(
        self,
        documents: DocumentParts,
        languages: ServedLanguages,
        receive: Receive,
        *,
        prefix: str,
        public_url: str | None,
    ) -> None:
        """Creates the handlers.

        Args:
            receive: for requests of the size of a document.
            prefix: before every path; empty: none.
            public_url: address of the server for its clients; None: that of the request.
        """
        self._jobs = documents.jobs
        self._translator = documents.translator
        self._languages = languages
        self._receive = receive
        self._prefix = prefix
        self._public_url = public_url

    @property
    def formats(self) -> list[str]:
        """The ends of the names of files that are translated."""
        return [] if self._jobs is None else list(FORMATS)

    async def translate_file(self, request: Request) -> Response:
        """Translates a file, and returns the address of the translation."""
        if self._jobs is None:
            raise refuse("Files translation are disabled on this server.", HTTPStatus.FORBIDDEN)
        parameters, deadline_seconds = await self._receive(request)
        upload = parameters.uploads.get("file")
        if upload is None:
            raise refuse("Invalid request: missing file parameter")
        given = required(parameters, "source"), required(parameters, "target")
        source, target = find_pair(self._languages, *given)
        if not upload.name or not upload.data:
            raise refuse("Invalid request: empty file")
        if PurePath(upload.name).suffix.lower() not in FORMATS:
            raise refuse("Invalid request: file format not supported")
        options = JobOptions(allow_pivot=True)
        record: RequestRecord = request.state.record
        self._translator.check(request_for(source, target, options), record)
        job = await self._jobs.create(
            upload.name, upload.data, source, target, options, account=record.account_id, owner=record.caller
        )
        done = await unless_disconnected(request, self._wait(self._jobs, job, deadline_seconds))
        if done.status is JobStatus.FAILED:
            raise refuse(f"Invalid request: {done.error}")
        address = self._public_url or str(request.base_url)
        name = f"{job.id}{job.key}{translated_suffix(upload.name).lower()}"
        return JSONResponse({"translatedFileUrl": f"{address.rstrip('/')}{self._prefix}{DOWNLOAD}/{name}"})

    async def download_file(self, name: str) -> Response:
        """Returns a translated file, which stays until it expires. Only the answer to its upload has its name."""
        if self._jobs is None:
            raise refuse("Files translation are disabled on this server.", HTTPStatus.FORBIDDEN)
        try:
            secret = PurePath(name).stem
            job = await self._jobs.get_with_key(secret[:JOB_ID_DIGITS], secret[JOB_ID_DIGITS:])
            translated = await self._jobs.result(job.id)
        except DocumentNotFoundError as error:
            raise refuse("Invalid filename") from error
        return DocumentAnswer(translated)

    async def _wait(self, jobs: DocumentJobs, job: Job, deadline_seconds: float) -> Job:
        while job.status not in (JobStatus.DONE, JobStatus.FAILED):
            if time.monotonic() >= deadline_seconds:
                await jobs.delete(job.id)
                raise DeadlineExceededError("the deadline passed before the file was translated")
            await asyncio.sleep(_POLL_SECONDS)
            job = await jobs.get(job.id)
        return job
