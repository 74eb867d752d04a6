"""The API of jobs: creates, reads and deletes them. Every process of a server answers for every job."""

import asyncio
import os
import re
from hmac import compare_digest
from pathlib import PurePath

from dragoman.serve.documents.document import translated_suffix
from dragoman.serve.documents.formats import FORMATS, kept_placeholders
from dragoman.serve.documents.job import Job, JobLimits, JobOptions, TranslatedDocument
from dragoman.serve.documents.job_store import JobStore
from dragoman.serve.documents.reader import DocumentReader
from dragoman.serve.errors import DocumentNotFoundError, InvalidRequestError, RequestTooLargeError
from dragoman.serve.host.threads import DOCUMENTS
from dragoman.serve.languages.names import language_tag

MAX_NAME_CHARACTERS = 200
JOB_ID_DIGITS = 32
_JOB_ID = re.compile(rf"[0-9a-f]{{{JOB_ID_DIGITS}}}")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class DocumentJobs:
    """Jobs in a store, with limits of documents; `created` is set when this process creates a job."""

    def __init__(self, store: JobStore, limits: JobLimits, reader: DocumentReader) -> None:
        self.limits = limits
        self.created = asyncio.Event()
        self.store = store
        self.reader = reader

    async def create(
        self,
        name: str,
        data: bytes,
        source_language: str,
        target_language: str,
        options: JobOptions = JobOptions(),  # noqa: B008 - it is frozen
        *,
        account: str = "",
        owner: str = "",
        callback: str = "",
    ) -> Job:
        """Stores a document; a worker of any process translates it.

        Args:
            name: of the file; its end names the format.
            source_language: code or English name, or `auto`.
            target_language: code or English name; files and names of results state it as a code.
            account: id of the client's API key, whose limits apply; empty: none is required.
            owner: what counts as one client, and has a share of the store.
            callback: allowed URL to call when the job has ended; empty: none.

        Raises:
            InvalidRequestError: if the name has no known format, or the file is empty.
            RequestTooLargeError: if the file is too large.
            DocumentStoreFullError: if the store has no room for the owner.
            StorageFullError: if the disk or the database has no space.
            ParserUnavailableError: if documents cannot be read now.
        """
        name = safe_name(name)
        if PurePath(name).suffix.lower() not in FORMATS:
            raise InvalidRequestError(
                "name", f"unknown format, expected a name that ends in one of {' '.join(FORMATS)}"
            )
        if not data:
            raise InvalidRequestError("file", "empty, expected a document")
        if len(data) > self.limits.document_bytes:
            raise RequestTooLargeError(f"file: {len(data)} bytes, expected at most {self.limits.document_bytes}")
        await self.reader.check()
        kinds = kept_placeholders(name, options.placeholders)
        options = options.model_copy(update={"placeholders": kinds})
        source, target = language_tag(source_language), language_tag(target_language)
        owned = {"account": account, "owner": owner, "callback": callback}
        job = await DOCUMENTS.run(self.store.add, name, data, source, target, options, **owned)
        self.created.set()
        return job

    async def get(self, job_id: str) -> Job:
        """Returns a job with its progress; raises DocumentNotFoundError if there is none, or it has expired."""
        return await DOCUMENTS.run(self.store.find, _checked(job_id))

    async def get_with_key(self, job_id: str, key: str) -> Job:
        """Returns a job, given its second secret; raises DocumentNotFoundError if there is none with both."""
        job = await self.get(job_id)
        if not compare_digest(key.encode(errors="replace"), job.key.encode()):
            raise DocumentNotFoundError("no such document: it is unknown, deleted or expired")
        return job

    async def result(self, job_id: str) -> TranslatedDocument:
        """Returns the result, named after its language; raises DocumentNotFoundError or DocumentNotReadyError."""
        job, file = await DOCUMENTS.run(self.store.open_result, _checked(job_id))
        name = f"{PurePath(job.name).stem}.{job.target_language}{translated_suffix(job.name)}"
        return TranslatedDocument(name, file, os.fstat(file.fileno()).st_size)

    async def delete(self, job_id: str) -> None:
        """Deletes a job with its files; raises DocumentNotFoundError if there is none, or it has expired."""
        await DOCUMENTS.run(self.store.remove, _checked(job_id))


def safe_name(name: str) -> str:
    """Returns the last part of a path, as text that is safe in headers and logs, and not too long."""
    path = PurePath(_CONTROLS.sub("", name.replace("\\", "/").rpartition("/")[2]).strip())
    return f"{path.stem[:MAX_NAME_CHARACTERS]}{path.suffix[:MAX_NAME_CHARACTERS]}"


def _checked(job_id: str) -> str:
    """Returns an id that may exist; others become empty, which none has."""
    return job_id if _JOB_ID.fullmatch(job_id) else ""
