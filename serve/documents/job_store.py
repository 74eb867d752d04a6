"""The store of jobs: a table of the state database, and files next to it. Processes share it.

A worker claims a job for a time that it extends; if the worker dies, another one claims the job after that time. Only
the holder of the last claim changes a job. Each method is one transaction, and blocks the thread.
"""

import os
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import urlsplit

import sqlalchemy as sa

from dragoman.serve.documents.job import Job, JobLimits, JobOptions, JobStatus
from dragoman.serve.errors import DocumentNotFoundError, DocumentNotReadyError, DocumentStoreFullError
from dragoman.serve.host.state import Identifier, State, largest_share, storing

# A worker extends its claim about every second.
CLAIM_SECONDS = 30.0
# A document that ends its process this many times is not tried again.
MAX_ATTEMPTS = 3
MAX_ERROR_CHARACTERS = 500
FOLDER = "documents"
# A file without a job belongs to a request that is about to create one, or to a process that died meanwhile.
_STRAY_SECONDS = 3600.0

_TABLES = sa.MetaData()
_JOBS = sa.Table(
    "documents",
    _TABLES,
    sa.Column("id", Identifier(32), primary_key=True),
    sa.Column("key", sa.String(64), nullable=False),
    sa.Column("account", sa.Text, nullable=False),
    # What counts as one client: an API key, or an address.
    sa.Column("owner", sa.Text, nullable=False, server_default=""),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("source_language", sa.Text, nullable=False),
    sa.Column("target_language", sa.Text, nullable=False),
    sa.Column("options", sa.Text, nullable=False),
    sa.Column("status", sa.String(16), nullable=False, index=True),
    sa.Column("created_seconds", sa.Double, nullable=False),
    sa.Column("expires_seconds", sa.Double, nullable=False, index=True),
    sa.Column("segments", sa.Integer, nullable=False, default=0),
    sa.Column("translated", sa.Integer, nullable=False, default=0),
    sa.Column("characters", sa.Integer, nullable=False, default=0),
    sa.Column("error", sa.Text, nullable=False, default=""),
    sa.Column("file_bytes", sa.BigInteger, nullable=False),
    sa.Column("claim", sa.String(32), nullable=False, default=""),
    # No worker claims the job earlier.
    sa.Column("claimed_until_seconds", sa.Double, nullable=False, default=0.0),
    sa.Column("attempts", sa.Integer, nullable=False, default=0),
    # The URL to call when the job has ended; empty: none, or none any more.
    sa.Column("callback", sa.Text, nullable=False, server_default=""),
    sa.Column("callback_host", sa.Text, nullable=False, server_default=""),
    sa.Column("callback_due_seconds", sa.Double, nullable=False, server_default="0"),
    sa.Column("callback_attempts", sa.Integer, nullable=False, server_default="0"),
)
_PUBLIC = [_JOBS.c[name] for name in Job.__slots__]
_ENDED = _JOBS.c.status.in_((JobStatus.DONE, JobStatus.FAILED))


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that this process translates; `owner`: what counts as one client."""

    job: Job
    token: str
    owner: str


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts of a job; see `Job`."""

    segments: int = 0
    translated: int = 0
    characters: int = 0


class DueCallback(NamedTuple):
    """The call back of an ended job that this process sends; `attempt` counts from 1."""

    id: str
    status: JobStatus
    url: str
    host: str
    attempt: int


class JobStore:
    """Jobs and their files. Thread-safe."""

    def __init__(self, state: State, limits: JobLimits, clock: Callable[[], float] = time.time) -> None:
        """Opens the store; `clock` returns the Unix time. Raises OSError if the folder cannot be created."""
        self._state = state
        self._limits = limits
        self._clock = clock
        self._folder = state.directory / FOLDER
        self._folder.mkdir(mode=0o700, exist_ok=True)
        state.create(_TABLES)

    def add(
        self,
        name: str,
        data: bytes,
        source_language: str,
        target_language: str,
        options: JobOptions,
        *,
        account: str = "",
        owner: str = "",
        callback: str = "",
    ) -> Job:
        """Stores a document and returns its waiting job; raises DocumentStoreFullError or StorageFullError."""
        now_seconds = self._clock()
        job = Job(
            id=secrets.token_hex(16),
            key=secrets.token_hex(32),
            account=account,
            name=name,
            source_language=source_language,
            target_language=target_language,
            options=options,
            status=JobStatus.QUEUED,
            created_seconds=now_seconds,
            expires_seconds=now_seconds + self._limits.keep_seconds,
        )
        try:
            _write(self._source(job.id), data)
            with self._state.writing() as connection:
                self._check_room(connection, owner, len(data))
                values = {column.name: getattr(job, column.name) for column in _PUBLIC}
                values |= {"options": options.model_dump_json(), "owner": owner, "file_bytes": len(data)}
                values |= {"callback": callback, "callback_host": urlsplit(callback).netloc}
                connection.execute(sa.insert(_JOBS).values(values))
        except BaseException:
            self._source(job.id).unlink(missing_ok=True)
            raise
        return job

    def _check_room(self, connection: sa.Connection, owner: str, new_bytes: int) -> None:
        own = _JOBS.c.owner == owner
        stored_bytes = sa.func.sum(_JOBS.c.file_bytes)
        columns = (sa.func.count(), sa.func.count().filter(own), stored_bytes, stored_bytes.filter(own))
        counts = connection.execute(sa.select(*columns).select_from(_JOBS)).one()
        jobs, own_jobs, file_bytes, own_bytes = (int(count or 0) for count in counts)
        for what, total, owned, more, limit in (
            ("documents", jobs, own_jobs, 1, self._limits.jobs),
            ("bytes of documents", file_bytes, own_bytes, new_bytes, self._limits.store_bytes),
        ):
            share = largest_share(limit, total - owned, first=own_jobs == 0)
            if owned + more > share:
                problem = f"expected at most {share} of this client and {limit} in all: delete some, or retry later"
                raise DocumentStoreFullError(f"{total} {what} are stored, {owned} of this client, {problem}")

    def find(self, job_id: str) -> Job:
        """Returns a job; raises DocumentNotFoundError if there is none, or it has expired."""
        kept = sa.not_(_expired(self._clock()))
        with self._state.reading() as connection:
            row = connection.execute(sa.select(*_PUBLIC).where(_JOBS.c.id == job_id, kept)).mappings().first()
        if row is None:
            raise DocumentNotFoundError("no such document: it is unknown, deleted or expired")
        return _job(row)

    def open_result(self, job_id: str) -> tuple[Job, BinaryIO]:
        """Returns a job and its result; raises DocumentNotFoundError, or DocumentNotReadyError if it is not done."""
        job = self.find(job_id)
        if job.status is JobStatus.FAILED:
            raise DocumentNotReadyError(f"the document was not translated: {job.error}")
        try:
            if job.status is JobStatus.DONE:
                return job, self._result(job_id).open("rb")
        except FileNotFoundError as error:
            raise DocumentNotFoundError("no such document: it was deleted") from error
        raise DocumentNotReadyError(f"the document is not translated yet: {job.status}")

    def remove(self, job_id: str) -> None:
        """Deletes a job with its files; its worker stops soon. Raises DocumentNotFoundError as `find`."""
        self.find(job_id)
        self._delete([job_id])

    def claim(self, excluded: Collection[str] = ()) -> Claim | None:
        """Takes the oldest job of the owner with the fewest in translation, unless excluded; None: there is none."""
        now_seconds = self._clock()
        claimable = sa.and_(_claimable(now_seconds), _JOBS.c.attempts < MAX_ATTEMPTS)
        running = _JOBS.alias()
        of_owner = sa.select(sa.func.count()).where(
            running.c.owner == _JOBS.c.owner,
            running.c.status == JobStatus.TRANSLATING,
            running.c.claimed_until_seconds > now_seconds,
        )
        with self._state.reading() as connection:
            oldest = connection.execute(
                sa.select(_JOBS.c.id)
                .where(claimable, _JOBS.c.owner.not_in(excluded))
                .order_by(of_owner.correlate(_JOBS).scalar_subquery(), _JOBS.c.created_seconds)
                .limit(1)
            ).scalar()
        if oldest is None:
            return None
        token = secrets.token_hex(16)
        taken = {
            "status": JobStatus.TRANSLATING,
            "claim": token,
            "claimed_until_seconds": now_seconds + CLAIM_SECONDS,
            "attempts": _JOBS.c.attempts + 1,
        }
        with self._state.writing() as connection:
            claiming = sa.update(_JOBS).where(_JOBS.c.id == oldest, claimable).values(taken)
            row = connection.execute(claiming.returning(*_PUBLIC, _JOBS.c.owner)).mappings().first()
        if row is None:  # another process has claimed it since
            return None
        values = dict(row)
        owner = values.pop("owner")
        return Claim(_job(values), token, owner)

    def read_source(self, claim: Claim) -> bytes:
        """Returns the document of a claimed job; raises DocumentNotFoundError if it was deleted meanwhile."""
        try:
            return self._source(claim.job.id).read_bytes()
        except FileNotFoundError as error:
            raise DocumentNotFoundError("no such document: it was deleted") from error

    def renew(self, claim: Claim, progress: Progress) -> bool:
        """Extends a claim and stores the progress; returns whether the claim still holds."""
        return self._change(claim, claimed_until_seconds=self._clock() + CLAIM_SECONDS, **asdict(progress))

    def finish(self, claim: Claim, progress: Progress, data: bytes) -> bool:
        """Stores the translated document in place of the source; returns whether the claim still held."""
        job_id = claim.job.id
        new = self._folder / f"{job_id}.{claim.token}"
        try:
            _write(new, data)
            with self._state.writing() as connection:
                values = {
                    **asdict(progress),
                    "status": JobStatus.DONE,
                    "expires_seconds": self._clock() + self._limits.keep_seconds,
                    "file_bytes": len(data),
                }
                if not connection.execute(sa.update(_JOBS).where(_held(claim)).values(values)).rowcount:
                    return False
                # Before the commit: a job that is done has its result.
                new.replace(self._result(job_id))
        finally:
            new.unlink(missing_ok=True)
        self._source(job_id).unlink(missing_ok=True)
        return True

    def fail(self, claim: Claim, error: str) -> bool:
        """Ends a job without a result; returns whether the claim still held."""
        held = self._change(
            claim,
            status=JobStatus.FAILED,
            error=error[:MAX_ERROR_CHARACTERS],
            expires_seconds=self._clock() + self._limits.keep_seconds,
            file_bytes=0,
        )
        if held:
            self._source(claim.job.id).unlink(missing_ok=True)
        return held

    def release(self, claim: Claim, wait_seconds: float = 0.0) -> bool:
        """Gives a job back, for no worker before `wait_seconds`; returns whether the claim still held."""
        claimed_until_seconds = self._clock() + wait_seconds
        values = {"status": JobStatus.QUEUED, "attempts": _JOBS.c.attempts - 1, "translated": 0}
        with self._state.writing() as connection:
            if not connection.execute(sa.update(_JOBS).where(_held(claim)).values(values)).rowcount:
                return False
            given_back = _JOBS.c.owner == claim.owner if wait_seconds else _JOBS.c.id == claim.job.id
            waiting = sa.and_(given_back, _JOBS.c.status == JobStatus.QUEUED)
            connection.execute(sa.update(_JOBS).where(waiting).values(claimed_until_seconds=claimed_until_seconds))
        return True

    def sweep(self) -> None:
        """Deletes what has expired, ends jobs after their last attempt, and deletes files without a job."""
        now_seconds = self._clock()
        given_up = sa.and_(_claimable(now_seconds), _JOBS.c.attempts >= MAX_ATTEMPTS)
        problem = f"the server ended {MAX_ATTEMPTS} times while it translated the document"
        with self._state.reading() as connection:
            expired = connection.execute(sa.select(_JOBS.c.id).where(_expired(now_seconds))).scalars().all()
            known = set(connection.execute(sa.select(_JOBS.c.id)).scalars())
            stuck = connection.execute(sa.select(_JOBS.c.id).where(given_up)).scalars().all()
        if stuck:
            with self._state.writing() as connection:
                connection.execute(sa.update(_JOBS).where(given_up).values(status=JobStatus.FAILED, error=problem))
        if expired:
            self._delete(expired)
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):
                if path.name.partition(".")[0] not in known and path.stat().st_mtime < now_seconds - _STRAY_SECONDS:
                    path.unlink()

    def claim_callback(self, excluded: Collection[str]) -> DueCallback | None:
        """Takes the call back that is due longest, unless its host is excluded; None: there is none."""
        now_seconds = self._clock()
        kept = sa.and_(_ENDED, _JOBS.c.expires_seconds > now_seconds)
        due = sa.and_(kept, _JOBS.c.callback != "", _JOBS.c.callback_due_seconds <= now_seconds)
        free = _JOBS.c.callback_host.not_in(excluded)
        with self._state.reading() as connection:
            query = sa.select(_JOBS.c.id).where(due, free).order_by(_JOBS.c.callback_due_seconds).limit(1)
            job_id = connection.execute(query).scalar()
        if job_id is None:
            return None
        attempts = _JOBS.c.callback_attempts
        taken = {"callback_due_seconds": now_seconds + CLAIM_SECONDS, "callback_attempts": attempts + 1}
        claiming = sa.update(_JOBS).where(_JOBS.c.id == job_id, due).values(taken)
        columns = (_JOBS.c.id, _JOBS.c.status, _JOBS.c.callback, _JOBS.c.callback_host, attempts)
        with self._state.writing() as connection:
            row = connection.execute(claiming.returning(*columns)).first()
        return None if row is None else DueCallback(*row)  # None: another process has claimed it since

    def settle_callback(self, callback: DueCallback, retry_seconds: float | None) -> None:
        """Makes a call back due again after a time, unless another process has claimed it since; None: it has ended."""
        values = {"callback": ""} if retry_seconds is None else {"callback_due_seconds": self._clock() + retry_seconds}
        last = sa.true() if retry_seconds is None else _JOBS.c.callback_attempts == callback.attempt
        with self._state.writing() as connection:
            connection.execute(sa.update(_JOBS).where(_JOBS.c.id == callback.id, last).values(values))

    def _change(self, claim: Claim, **values: object) -> bool:
        with self._state.writing() as connection:
            return bool(connection.execute(sa.update(_JOBS).where(_held(claim)).values(values)).rowcount)

    def _delete(self, job_ids: Sequence[str]) -> None:
        with self._state.writing() as connection:
            connection.execute(sa.delete(_JOBS).where(_JOBS.c.id.in_(job_ids)))
        for job_id in job_ids:
            self._source(job_id).unlink(missing_ok=True)
            self._result(job_id).unlink(missing_ok=True)

    def _source(self, job_id: str) -> Path:
        return self._folder / f"{job_id}.source"

    def _result(self, job_id: str) -> Path:
        return self._folder / f"{job_id}.result"


def _claimable(now_seconds: float) -> sa.ColumnElement[bool]:
    """Returns whether a job waits, or its worker died."""
    unfinished = _JOBS.c.status.in_((JobStatus.QUEUED, JobStatus.TRANSLATING))
    return sa.and_(unfinished, _JOBS.c.claimed_until_seconds <= now_seconds)


def _expired(now_seconds: float) -> sa.ColumnElement[bool]:
    """Returns whether a job may be deleted: one that waits or is being translated may not."""
    return sa.and_(_ENDED, _JOBS.c.expires_seconds <= now_seconds)


def _held(claim: Claim) -> sa.ColumnElement[bool]:
    return sa.and_(_JOBS.c.id == claim.job.id, _JOBS.c.claim == claim.token, _JOBS.c.status == JobStatus.TRANSLATING)


def _job(row: sa.RowMapping | dict[str, Any]) -> Job:
    values = dict(row)
    values["options"] = JobOptions.model_validate_json(values["options"], strict=False)
    return Job(**{**values, "status": JobStatus(values["status"])})


def _write(path: Path, data: bytes) -> None:
    """Writes a new file that only this user may read, and waits until the disk has it."""
    with storing(), os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
