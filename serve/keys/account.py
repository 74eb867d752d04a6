"""What one key uses in this process: its requests at once, requests of the minute, and leased characters."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import structlog
from sqlalchemy.exc import SQLAlchemyError

from dragoman.serve.errors import ForbiddenError, NotReadyError, QuotaExceededError, RateLimitedError
from dragoman.serve.keys.key import Key, period_end, period_start
from dragoman.serve.keys.usage import Counted, UsageStore

# Characters of a lease. After a SIGKILL, at most as many count as used.
PORTION = 10_000
# A lease is at most this share of a quota.
_PORTIONS_PER_QUOTA = 16
# An account asks the database for a refused number of characters or requests once per second.
_ASK_AGAIN_SECONDS = 1.0
_MINUTE_SECONDS = 60

_log = structlog.get_logger("dragoman")


@dataclass(slots=True)
class Lease:
    """The characters of one period that this process counts.

    Attributes:
        used: by answered requests.
        running: of requests that are not answered yet.
        free: leased, for the next requests.
        changed: differs from its row in the database.
    """

    period_start_seconds: int
    used: int = 0
    running: int = 0
    free: int = 0
    changed: bool = False

    def row(self, key_id: str) -> Counted:
        """Returns the row of the database."""
        return Counted(key_id, self.period_start_seconds, self.used, self.running + self.free)


class Charge:
    """The characters of one request. They count if the request succeeds or is canceled, or if `keep` was called.

    Attributes:
        failed: characters that do not count, of the parts of the request that failed.
    """

    def __init__(self, lease: Lease, characters: int) -> None:
        self._lease = lease
        self._characters = characters
        self._kept = False
        self.failed = 0

    def keep(self) -> None:
        """Counts the characters even if the request fails, because the client has a part of its answer."""
        self._kept = True

    def finish(self, *, used: bool) -> int:
        """Ends the request, and returns how many characters count."""
        lease, characters = self._lease, self._characters
        lease.running -= characters
        counted = characters - self.failed if used or self._kept else 0
        lease.used += counted
        lease.free += characters - counted
        lease.changed = True
        return counted


class Account:
    """The use of one key. Belongs to the event loop's thread.

    Attributes:
        key: with the current limits.
        requests: started ones by outcome, for metrics.
        characters: counted ones, for metrics.
    """

    def __init__(
        self, key: Key, usage: UsageStore | None, writing: asyncio.Lock, clock: Callable[[], float] = time.time
    ) -> None:
        """Creates the account.

        Args:
            usage: for all processes; None: nothing is counted, and limits of characters and requests do not apply.
            writing: held while rows of the process are written.
            clock: returns the seconds since 1970.
        """
        self.key = key
        self.characters = 0
        self.requests = {"admitted": 0, "refused": 0}
        self.leases: dict[int, Lease] = {}
        self._usage = usage
        self._clock = clock
        self._running = 0
        self._slots = 0
        self._minute = 0
        self._minute_requests = 0
        self._refused: tuple[float, int] | None = None
        self._writing = writing

    def update(self, key: Key) -> None:
        """Applies changed limits."""
        if key == self.key:
            return
        self.key = key
        self._refused = None
        self._minute_requests = 0
        for lease in self.leases.values():
            lease.free, lease.changed = 0, True

    def allows(self, model: str) -> bool:
        """Returns whether the key may use a model."""
        models = self.key.limits.models
        return not models or model in models

    def check_model(self, model: str) -> None:
        """Raises ForbiddenError if the key may not use a model."""
        if not self.allows(model):
            allowed = ", ".join(self.key.limits.models)
            raise ForbiddenError(f"model: {model[:64]!r}, expected one that the API key may use: {allowed}")

    @asynccontextmanager
    async def charge(self, characters: int) -> AsyncIterator[Charge]:
        """Counts a request while the block runs, and its characters.

        Raises:
            RateLimitedError: if the key has too many requests at once or in this minute.
            QuotaExceededError: if fewer characters are left in the period.
            NotReadyError: if the database does not answer.
        """
        try:
            await self._take_slot()
            try:
                await self._count_request()
                charge = Charge(await self._reserve(characters), characters)
            except BaseException:
                self._running -= 1
                raise
        except Exception:
            self.requests["refused"] += 1
            raise
        self.requests["admitted"] += 1
        used = True
        try:
            yield charge
        except Exception:
            used = False
            raise
        finally:
            self.characters += charge.finish(used=used)
            self._running -= 1

    async def count_used(self) -> tuple[int, int, int | None]:
        """Returns the used characters, start and end of the period; raises NotReadyError without the database."""
        period = self.key.limits.period
        start = period_start(period, self._clock())
        own = self.leases[start].used if start in self.leases else None
        used = own or 0 if self._usage is None else await ask(self._usage.used, self.key.id, start, own)
        return used, start, period_end(period, start)

    def rows(self) -> list[Counted]:
        """Returns the rows to write now. A lease without a request since the last call returns to the quota."""
        rows = []
        for lease in self.leases.values():
            if lease.changed or lease.running or lease.free:
                if not lease.changed:
                    lease.free = 0
                rows.append(lease.row(self.key.id))
            lease.changed = False
        return rows

    def slots(self) -> int | None:
        """Returns the requests at once to write now, which are those that run; None: the process held none."""
        if not self._slots:
            return None
        self._slots = self._running
        return self._slots

    def last_rows(self) -> list[Counted]:
        """Returns all rows, without the characters of requests that still run."""
        for lease in self.leases.values():
            lease.free = 0
        return [lease.row(self.key.id) for lease in self.leases.values()]

    def repeat_rows(self) -> None:
        """Lets `rows` return all rows again, after they were not written."""
        for lease in self.leases.values():
            lease.changed = True

    def forget_ended(self) -> None:
        """Drops the leases of past periods whose requests have ended and are written."""
        current = self._current()
        self.leases = {
            start: lease
            for start, lease in self.leases.items()
            if lease is current or lease.running or lease.free or lease.changed
        }

    async def _take_slot(self) -> None:
        """Counts a running request, if all processes together may have one more."""
        most = self.key.limits.concurrency
        if most is not None:
            if self._usage is not None and self._running >= self._slots:
                async with self._writing:
                    if self._slots <= self._running < most:
                        self._slots += await ask(self._usage.lease_slot, self.key.id, self._slots, most)
            if self._running >= (most if self._usage is None else min(most, self._slots)):
                raise RateLimitedError(f"the API key has {most} requests at once, expected no more")
        self._running += 1

    async def _count_request(self) -> None:
        most = self.key.limits.requests_per_minute
        if most is None or self._usage is None:
            return
        minute, second = divmod(int(self._clock()), _MINUTE_SECONDS)
        if minute != self._minute or not self._minute_requests:
            async with self._writing:
                if minute != self._minute or self._minute_requests == 0:
                    portion = max(1, most // _PORTIONS_PER_QUOTA)
                    leased = await ask(self._usage.count_requests, self.key.id, minute, portion, most)
                    # Below 0: none is left until the next minute.
                    self._minute, self._minute_requests = minute, leased or -1
        if self._minute_requests <= 0:
            problem = f"the API key has used its {most} requests of this minute"
            raise RateLimitedError(problem, _MINUTE_SECONDS - second)
        self._minute_requests -= 1

    async def _reserve(self, characters: int) -> Lease:
        """Returns the lease of the current period with the characters of a request."""
        lease = self._current()
        if self._usage is None:
            lease.free += characters
        elif lease.free < characters:
            async with self._writing:
                lease = self._current()
                # Other requests may have leased meanwhile, and may take what is free during each lease.
                while lease.free < characters:
                    leased = await self._lease(self._usage, lease, characters - lease.free)
                    lease.free += leased
        lease.free -= characters
        lease.running += characters
        lease.changed = True
        return lease

    def _current(self) -> Lease:
        start = period_start(self.key.limits.period, self._clock())
        if start not in self.leases:
            self.leases[start] = Lease(start)
        return self.leases[start]

    async def _lease(self, usage: UsageStore, lease: Lease, least: int) -> int:
        limit = self.key.limits.characters
        now_seconds = time.monotonic()
        if self._refused is not None and now_seconds < self._refused[0] and least >= self._refused[1]:
            raise self._exceeded()
        portion = PORTION if limit is None else min(PORTION, limit // _PORTIONS_PER_QUOTA)
        row = lease.row(self.key.id)
        leased = await ask(usage.lease, row, max(least, portion), least, limit)
        if leased < least:
            self._refused = now_seconds + _ASK_AGAIN_SECONDS, least
            raise self._exceeded()
        return leased

    def _exceeded(self) -> QuotaExceededError:
        limits = self.key.limits
        period = "in all" if limits.period == "ever" else f"per {limits.period}"
        quota = f"{limits.characters} characters {period}"
        return QuotaExceededError(f"the request exceeds the quota of the API key: {quota}")


P = ParamSpec("P")
T = TypeVar("T")


async def ask(call: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Returns the result of a call to the database, in another thread.

    If it is canceled, it waits for the thread first: a lock that is held meanwhile keeps the order of writes.

    Raises NotReadyError if the database does not answer.
    """
    calling = asyncio.create_task(asyncio.to_thread(call, *arguments, **options))
    try:
        return await asyncio.shield(calling)
    except asyncio.CancelledError:
        await asyncio.gather(calling, return_exceptions=True)
        raise
    except SQLAlchemyError as error:
        _log.warning("usage_unavailable", problem=type(error).__name__)
        raise NotReadyError("the use of the API key cannot be counted now; retry later") from error
