"""DeepL's documents, over the document jobs of the server."""

import time
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dragoman.serve.compat.deepl.request import check_formality, check_names, glossary_ids, refuse, unserved
from dragoman.serve.compat.served_languages import ServedLanguages
from dragoman.serve.documents.job import Job, JobOptions, JobStatus
from dragoman.serve.documents.jobs import DocumentJobs
from dragoman.serve.documents_api.result import DocumentAnswer
from dragoman.serve.documents_api.translator import DocumentParts, request_for
from dragoman.serve.edge.interface import Routes
from dragoman.serve.edge.parameters import Parameters, Receive
from dragoman.serve.errors import DocumentNotReadyError, InvalidRequestError
from dragoman.serve.observability.logs import RequestRecord

DOCUMENT = "/v2/document"
# Clients expect that a document is not done right after its upload.
_SOONEST_SECONDS = 1.0
_PARAMETERS = frozenset(
    ("target_lang", "source_lang", "filename", "formality", "glossary_id", "glossary_ids", "output_format", "auth_key")
)


class DeepLDocuments:
    """Handlers of the routes of documents."""

    def __init__(
        self, documents: DocumentParts, languages: ServedLanguages, receive: Receive, receive_large: Receive
    ) -> None:
        """Creates the handlers; `receive_large` is for requests of the size of a document."""
        self._jobs = documents.jobs
        self._translator = documents.translator
        self._languages = languages
        self._receive = receive
        self._receive_large = receive_large

    def routes(self) -> Routes:
        """Yields method, path and handler of each route."""
        yield "POST", DOCUMENT, self.upload
        yield "POST", f"{DOCUMENT}/{{document_id}}", self.status
        yield "POST", f"{DOCUMENT}/{{document_id}}/result", self.result

    async def upload(self, request: Request) -> Response:
        """Stores a document, which is translated in the background."""
        jobs = self._enabled()
        parameters, _ = await self._receive_large(request)
        upload = parameters.uploads.get("file")
        if upload is None:
            raise refuse("Invalid file data: parameter 'file' not specified.")
        source, target = self._languages_of(parameters)
        options = JobOptions(allow_pivot=True, glossary=glossary_ids(parameters))
        record: RequestRecord = request.state.record
        self._translator.check(request_for(source, target, options), record)
        name = parameters.first("filename") or upload.name
        try:
            job = await jobs.create(
                str(name), upload.data, source, target, options, account=record.account_id, owner=record.caller
            )
        except InvalidRequestError as error:
            if error.field not in ("file", "name"):
                raise
            raise refuse(f"Invalid file data: {error.problem}", HTTPStatus.BAD_REQUEST) from error
        return JSONResponse({"document_id": job.id.upper(), "document_key": job.key.upper()})

    async def status(self, request: Request, document_id: str) -> Response:
        """Returns the status of a document."""
        job = await self._find(request, document_id)
        status = _status(job)
        answer: dict[str, Any] = {"document_id": job.id.upper(), "status": status}
        if status is JobStatus.TRANSLATING:
            elapsed_seconds = time.time() - job.created_seconds
            remaining_seconds = elapsed_seconds * (job.segments - job.translated) / max(1, job.translated)
            answer["seconds_remaining"] = max(1, round(remaining_seconds))
        elif status is JobStatus.DONE:
            answer["billed_characters"] = job.characters
        elif status is JobStatus.FAILED:
            answer |= {"status": "error", "error_message": job.error}
        return JSONResponse(answer)

    async def result(self, request: Request, document_id: str) -> Response:
        """Returns the translated document once, and deletes it."""
        job = await self._find(request, document_id)
        if _status(job) is not JobStatus.DONE:
            raise DocumentNotReadyError("Document not ready")
        jobs = self._enabled()
        translated = await jobs.result(job.id)
        await jobs.delete(job.id)
        return DocumentAnswer(translated)

    def _enabled(self) -> DocumentJobs:
        if self._jobs is None:
            raise refuse("Documents are not supported by this server: it has no --state-dir.")
        return self._jobs

    async def _find(self, request: Request, document_id: str) -> Job:
        jobs = self._enabled()
        parameters, _ = await self._receive(request)
        key = parameters.first("document_key")
        return await jobs.get_with_key(document_id.lower(), key.lower() if isinstance(key, str) else "")

    def _languages_of(self, parameters: Parameters) -> tuple[str, str]:
        check_names(parameters, _PARAMETERS)
        target = parameters.first("target_lang")
        if not target:
            raise refuse("Parameter 'target_lang' not specified.")
        check_formality(parameters, str(target))
        if parameters.first("output_format"):
            raise refuse("Parameter 'output_format' is not supported by this server.")
        source = parameters.first("source_lang")
        pair = self._languages.find_pair(str(source) if source else None, str(target), unserved)
        if pair[0] == pair[1]:
            raise refuse("Source and target language are equal.")
        return pair


def _status(job: Job) -> JobStatus:
    if job.status is JobStatus.DONE and time.time() - job.created_seconds < _SOONEST_SECONDS:
        return JobStatus.TRANSLATING
    return job.status
