"""The REST routes of documents: create a job, read its status, take the result, delete it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from http import HTTPStatus
from typing import Any

from pydantic import TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dragoman.serve.callbacks.hosts import CallbackHosts
from dragoman.serve.documents.formats import FORMATS
from dragoman.serve.documents.job import Job, JobOptions, JobStatus
from dragoman.serve.documents.jobs import DocumentJobs
from dragoman.serve.documents_api.result import DocumentAnswer
from dragoman.serve.documents_api.translator import DocumentParts, request_for
from dragoman.serve.edge.parameters import Parameters
from dragoman.serve.edge.problems import problem_documentation
from dragoman.serve.edge.reader import TIMEOUT_PARAMETER
from dragoman.serve.edge.route_table import DOCUMENTS, Route, RouteGroup, described_by_name
from dragoman.serve.edge.schemas import BINARY, content_of, inlined_schema, object_of
from dragoman.serve.errors import DocumentNotFoundError, DocumentNotReadyError, InvalidRequestError, ServiceError
from dragoman.serve.observability.logs import RequestRecord
from dragoman.serve.translation.fields import Fields, refusal
from dragoman.serve.translation.markup import read_markup
from dragoman.tables import read_table

_FILE = content_of(BINARY, ("application/octet-stream",))
_TEXTS: dict[str, dict[str, str]] = read_table(__file__, "http.yaml")


def create_documentation(options: type[Fields]) -> dict[str, Any]:
    """Returns the OpenAPI request of `POST /v1/documents`."""
    fields = {**_TEXTS, **inlined_schema(options)["properties"]}
    form = object_of("file", file={**BINARY, "description": "The document."}, **fields)
    query = [
        {
            "name": name,
            "in": "query",
            "schema": {key: value for key, value in field.items() if key != "description"},
            "description": field.get("description", ""),
        }
        for name, field in fields.items()
    ]
    content = {**content_of(form, ("multipart/form-data",)), **_FILE}
    return {"requestBody": {"required": True, "content": content}, "parameters": [*query, TIMEOUT_PARAMETER]}


DOCUMENTS_PATH = "/v1/documents"
DISABLED = "documents: requires a server with --state-dir"
_LISTS = ("target_languages", "glossary", "placeholders", "ignore_tags", "columns")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDescription:
    """A job as clients see it. Times are in Unix seconds.

    Attributes:
        progress: share of the document that is translated, 0 to 1.
        characters: of the document's text; 0 until the document is read.
        error: why the translation failed; null if it did not.
    """

    id: str
    name: str
    source_language: str
    target_language: str
    status: JobStatus
    progress: float
    characters: int
    created_seconds: float
    expires_seconds: float
    error: str | None

    @classmethod
    def of(cls, job: Job) -> "JobDescription":
        """Returns the description of a job."""
        progress = 1.0 if job.status is JobStatus.DONE else round(job.translated / max(1, job.segments), 3)
        copied = {field.name: getattr(job, field.name) for field in fields(cls) if field.name != "progress"}
        return cls(**{**copied, "progress": progress, "error": job.error or None})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobList:
    """The jobs of one file, in the order of its target languages."""

    documents: tuple[JobDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentFormats:
    """What documents the server translates.

    Attributes:
        formats: ends of file names.
        max_bytes: size of a document.
    """

    formats: Sequence[str]
    max_bytes: int


_JOB, _JOBS, _FORMATS = TypeAdapter(JobDescription), TypeAdapter(JobList), TypeAdapter(DocumentFormats)


def _describe_routes() -> dict[str, dict[str, Any]]:
    unknown = problem_documentation(InvalidRequestError, DocumentNotFoundError)
    unready = problem_documentation(InvalidRequestError, DocumentNotFoundError, DocumentNotReadyError)
    created = {
        "response_model": JobDescription | JobList,
        "responses": {**problem_documentation(), 414: {"description": "The query is too long."}},
        "status_code": HTTPStatus.CREATED,
        "openapi_extra": create_documentation(JobOptions),
    }
    deleted = {"status_code": HTTPStatus.NO_CONTENT, "response_class": Response, "responses": unknown}
    written: dict[int | str, Any] = {int(HTTPStatus.OK): {"description": "The translated document.", "content": _FILE}}
    result = {"response_class": Response, "responses": {**written, **unready}}
    found = {"response_model": JobDescription, "responses": unknown}
    formats = {"response_model": DocumentFormats, "responses": unknown}
    return {
        "create": {"summary": "Stores a document for translation", **created},
        "formats": {"summary": "Returns which documents the server translates", **formats},
        "get": {"summary": "Returns the status of a document", **found},
        "result": {"summary": "Returns the translated document", **result},
        "delete": {"summary": "Deletes a document and its translation", **deleted},
    }


class HttpDocuments:
    """Handlers of the document routes."""

    def __init__(self, documents: DocumentParts, callback_hosts: CallbackHosts) -> None:
        """Creates the handlers; without jobs, the server has no state directory, and refuses documents."""
        self._jobs, self._translator, self._reader = documents.jobs, documents.translator, documents.reader
        self._callback_hosts = callback_hosts

    @property
    def routes(self) -> RouteGroup:
        """The routes."""
        path, one = DOCUMENTS_PATH, f"{DOCUMENTS_PATH}/{{document_id}}"
        routes = (
            Route("POST", path, self.create),
            Route("GET", f"{path}/formats", self.formats),
            Route("GET", one, self.get),
            Route("GET", f"{one}/result", self.result),
            Route("DELETE", one, self.delete),
        )
        return RouteGroup(routes, described_by_name(_describe_routes), DOCUMENTS)

    async def create(self, request: Request) -> Response:
        """Takes the file as the part `file` of a form, or as the body, with the other fields in the query.

        The answer comes before the translation: ask for the status until it is `done` or `failed`. With
        `target_languages`, the answer has a document per target, each with a status of its own.
        """
        jobs = self._enabled()
        name, data, parameters = await self._receive(request)
        fields = _fields(parameters)
        source, target = (str(fields.pop(text, "")) for text in ("source_language", "target_language"))
        several: Sequence[str] = fields.pop("target_languages", ())
        record: RequestRecord = request.state.record
        if callback := str(fields.pop("callback", "")):
            permitted = record.account is None or record.account.key.limits.callbacks
            callback = str(self._callback_hosts.check(callback, permitted=permitted))
        options = _options(fields)
        if not target and not several:
            raise InvalidRequestError("target_language", "expected an ISO 639-1 code")
        read_markup("html", {"ignore_tags": options.ignore_tags})
        requested = request_for(source, target, options)._replace(target_languages=several)
        targets = self._translator.check(requested, record)
        create = partial(
            jobs.create, name, data, source, account=record.account_id, owner=record.caller, callback=callback
        )
        if several:
            return await _create_each([partial(create, each, options) for each in targets], jobs)
        job = await create(target, options)
        location = {"location": f"{DOCUMENTS_PATH}/{job.id}"}
        return _describe(job, HTTPStatus.CREATED, location)

    async def formats(self) -> Response:
        """Returns the ends of the names of files, and the largest size."""
        limits = self._enabled().limits
        known = DocumentFormats(formats=tuple(FORMATS), max_bytes=limits.document_bytes)
        return Response(_FORMATS.dump_json(known), media_type="application/json")

    async def get(self, document_id: str) -> Response:
        """Returns status and progress."""
        return _describe(await self._enabled().get(document_id))

    async def result(self, document_id: str) -> Response:
        """Returns the file; it stays until it is deleted or expires."""
        return DocumentAnswer(await self._enabled().result(document_id))

    async def delete(self, document_id: str) -> Response:
        """Stops the translation if it runs."""
        await self._enabled().delete(document_id)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    def _enabled(self) -> DocumentJobs:
        if self._jobs is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, DISABLED)
        return self._jobs

    async def _receive(self, request: Request) -> tuple[str, bytes, Parameters]:
        parameters, data = await self._reader.read_file(request)
        if data is not None:
            return str(parameters.first("name") or ""), data, parameters
        if "file" not in parameters.uploads:
            raise InvalidRequestError("file", "expected a part with this name and the name of a file")
        upload = parameters.uploads["file"]
        return str(parameters.first("name") or upload.name), upload.data, parameters


def _fields(parameters: Parameters) -> dict[str, Any]:
    """Returns the fields of a form or query; a list may be repeated, or separated by commas."""
    fields = {name: parameters.first(name) for name in parameters.values if name != "name"}
    for name in _LISTS:
        if name in fields:
            fields[name] = [part for value in parameters.all(name) for part in str(value).split(",") if part]
    return fields


def _options(fields: dict[str, Any]) -> JobOptions:
    try:
        return JobOptions.model_validate(fields, strict=False)
    except ValidationError as error:
        raise refusal(error) from error


async def _create_each(creations: Sequence[Callable[[], Awaitable[Job]]], jobs: DocumentJobs) -> Response:
    """Returns the answer with all jobs of a file; if one cannot be created, none stays."""
    created = list[Job]()
    try:
        for create in creations:
            created.append(await create())
    except BaseException:
        for job in created:
            with suppress(ServiceError):
                await asyncio.shield(jobs.delete(job.id))
        raise
    content = _JOBS.dump_json(JobList(documents=tuple(map(JobDescription.of, created))))
    return Response(content, HTTPStatus.CREATED, media_type="application/json")


def _describe(job: Job, status: HTTPStatus = HTTPStatus.OK, headers: dict[str, str] | None = None) -> Response:
    content = _JOB.dump_json(JobDescription.of(job))
    return Response(content, status, headers, media_type="application/json")
