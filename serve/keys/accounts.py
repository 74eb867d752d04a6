"""The accounts of all keys of a process: written regularly, closed at an orderly stop, and shown as metrics."""

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator

import structlog
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from dragoman.serve.errors import NotReadyError
from dragoman.serve.host.state import State
from dragoman.serve.keys.account import Account, ask
from dragoman.serve.keys.key import Key
from dragoman.serve.keys.usage import UsageStore

_log = structlog.get_logger("dragoman")

_PROCESS_BYTES = 8
# Keys with their own label; those with the smallest names have one.
MAX_NAMES = 100
OTHER_KEYS = "other"


class Accounts:
    """One account per key. Belongs to the event loop's thread."""

    def __init__(self, state: State | None, clock: Callable[[], float] = time.time) -> None:
        """Creates no account yet; `state`: None if nothing is counted."""
        self.counting = state is not None
        self._usage = None if state is None else UsageStore(state, secrets.token_hex(_PROCESS_BYTES))
        self._clock = clock
        self._accounts: dict[str, Account] = {}
        self._writing = asyncio.Lock()

    def __iter__(self) -> Iterator[Account]:
        """Iterates over the accounts."""
        # Metrics are collected in another thread.
        return iter(tuple(self._accounts.values()))

    def of(self, key: Key) -> Account:
        """Returns the account of a key, with its current limits."""
        account = self._accounts.get(key.id)
        if account is None:
            account = self._accounts[key.id] = Account(key, self._usage, self._writing, self._clock)
        account.update(key)
        return account

    async def write(self) -> None:
        """Writes what has changed, and returns leases without requests to their quotas. Must be called regularly."""
        if self._usage is None:
            return
        async with self._writing:
            rows = [row for account in self for row in account.rows()]
            held = {account.key.id: slots for account in self if (slots := account.slots()) is not None}
            if not rows and not held:
                return
            try:
                await ask(self._usage.write, rows, held)
            except NotReadyError:
                for account in self:
                    account.repeat_rows()
                return
            for account in self:
                account.forget_ended()

    async def close(self) -> None:
        """Writes the final counts, when no request runs any more."""
        if self._usage is not None:
            async with self._writing:
                accounts = tuple(self)
                rows = [row for account in accounts for row in account.last_rows()]
                if accounts:
                    try:
                        await ask(self._usage.close, rows)
                    except NotReadyError as error:
                        _log.error("key_counts_lost", problem=str(error), keys=len(accounts))


class KeyMetrics(Collector):
    """Requests and characters per name of a key, of a bounded number of names."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def describe(self) -> list[Metric]:
        """Describes nothing, so that registration does not collect."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields the counters."""
        requests = CounterMetricFamily(
            "dragoman_key_requests", "Translations and scores by name of the API key.", labels=("key", "outcome")
        )
        characters = CounterMetricFamily(
            "dragoman_key_characters", "Counted source characters by name of the API key.", labels=("key",)
        )
        accounts = sorted(self._accounts, key=lambda item: item.key.name)
        by_name: dict[str, tuple[dict[str, int], int]] = {}
        for number, account in enumerate(accounts):
            name = account.key.name if account.key.name and number < MAX_NAMES else OTHER_KEYS
            counts, total = by_name.get(name, ({}, 0))
            summed = {request: counts.get(request, 0) + count for request, count in account.requests.items()}
            by_name[name] = summed, total + account.characters
        for name, (counts, total) in by_name.items():
            characters.add_metric((name,), total)
            for outcome, count in counts.items():
                requests.add_metric((name, outcome), count)
        yield requests
        yield characters
