"""Accounts: what counts, what is refused, and that counts are exact after an orderly stop."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from dragoman.serve.errors import InternalError, NotReadyError, QuotaExceededError, RateLimitedError
from dragoman.serve.host.state import State
from dragoman.serve.keys.account import PORTION, Account
from dragoman.serve.keys.accounts import MAX_NAMES, OTHER_KEYS, Accounts, KeyMetrics
from dragoman.serve.keys.key import Key, KeyLimits
from dragoman.serve.keys.usage import Counted, UsageStore
from tests.support.fakes import FakeClock

pytestmark = pytest.mark.anyio


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path)


def key_of(number: int = 0, **limits: object) -> Key:
    return Key(f"id-{number}", f"name-{number}", b"", KeyLimits.model_validate(limits))


async def send(account: Account, characters: int, error: BaseException | None = None) -> None:
    """Sends a request that succeeds or fails."""
    async with account.charge(characters):
        await asyncio.sleep(0)
        if error is not None:
            raise error


async def used(account: Account) -> int:
    return (await account.count_used())[0]


async def test_answered_and_canceled_requests_count_and_failed_ones_do_not(state: State) -> None:
    account = Accounts(state).of(key_of())
    await send(account, 10)
    with suppress(asyncio.CancelledError):
        await send(account, 200, asyncio.CancelledError())
    with suppress(InternalError):
        await send(account, 3000, InternalError("failed"))
    assert await used(account) == 210


async def test_a_failed_request_counts_after_a_part_of_its_answer(state: State) -> None:
    account = Accounts(state).of(key_of())
    with suppress(InternalError):
        async with account.charge(10) as charge:
            charge.keep()
            raise InternalError("failed")
    assert await used(account) == 10


async def test_a_quota_is_used_up_to_its_last_character(state: State) -> None:
    account = Accounts(state).of(key_of(characters=100))
    for characters in (60, 30, 10, 0):
        await send(account, characters)
    with pytest.raises(QuotaExceededError, match="100 characters per month"):
        await send(account, 1)
    assert await used(account) == 100


async def test_what_another_request_takes_during_a_lease_is_not_given_twice(state: State) -> None:
    account = Accounts(state).of(key_of(characters=61))
    await send(account, 1)  # leases 3
    large, small = await asyncio.gather(send(account, 60), send(account, 2), return_exceptions=True)
    assert isinstance(large, QuotaExceededError)
    assert small is None
    assert await used(account) == 3


async def test_the_next_period_has_the_whole_quota(state: State) -> None:
    clock = FakeClock(1e9)
    accounts = Accounts(state, clock)
    account = accounts.of(key_of(characters=100, period="day"))
    await send(account, 100)
    clock.seconds += 24 * 3600
    await send(account, 70)
    await accounts.write()
    await accounts.write()
    assert len(account.leases) == 1
    assert await used(account) == 70
    clock.seconds -= 24 * 3600
    assert await used(account) == 100


async def test_a_changed_limit_applies_to_the_next_request(state: State) -> None:
    accounts = Accounts(state)
    account = accounts.of(key_of(characters=10))
    await send(account, 10)
    with pytest.raises(QuotaExceededError):
        await send(account, 5)
    assert accounts.of(key_of(characters=None)) is account
    await send(account, 5)
    assert await used(account) == 15


async def test_a_write_that_is_canceled_ends_before_the_final_counts(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts = Accounts(state)
    await send(accounts.of(key_of()), 10)
    begun, write, written, writes = Event(), Event(), Event(), UsageStore.write

    def write_late(store: UsageStore, rows: Sequence[Counted], slots: Mapping[str, int]) -> None:
        begun.set()
        write.wait()
        writes(store, rows, slots)
        written.set()

    monkeypatch.setattr(UsageStore, "write", write_late)
    writing = asyncio.create_task(accounts.write())
    await asyncio.to_thread(begun.wait)
    writing.cancel()
    closing = asyncio.create_task(accounts.close())
    await asyncio.wait((closing,), timeout=0.2)
    write.set()
    await asyncio.gather(writing, closing, return_exceptions=True)
    await asyncio.to_thread(written.wait)
    assert UsageStore(state, "reader").used("id-0", await month_of(accounts)) == 10


async def month_of(accounts: Accounts) -> int:
    return (await accounts.of(key_of()).count_used())[1]


async def test_a_killed_process_costs_at_most_one_portion(state: State) -> None:
    killed, other = Accounts(state), Accounts(state)
    quota = 50_000
    for _ in range(50):
        await send(killed.of(key_of(characters=quota)), 300)
    await killed.write()
    left = quota - 50 * 300
    account, granted = other.of(key_of(characters=quota)), 0
    with suppress(QuotaExceededError):
        while True:
            await send(account, 100)
            granted += 100
    assert left - quota / 16 - 100 < granted <= left


async def test_a_lease_without_requests_returns_to_the_quota(state: State) -> None:
    idle, busy = Accounts(state), Accounts(state)
    await send(idle.of(key_of(characters=1000)), 1)
    await idle.write()
    await idle.write()
    await send(busy.of(key_of(characters=1000)), 999)


async def test_requests_per_minute_are_refused_until_the_next_minute(state: State) -> None:
    clock = FakeClock(1e9)
    account = Accounts(state, clock).of(key_of(requests_per_minute=3))
    for _ in range(3):
        await send(account, 1)
    with pytest.raises(RateLimitedError, match="3 requests of this minute") as refused:
        await send(account, 1)
    clock.seconds += refused.value.retry_after_seconds or 0
    await send(account, 1)
    assert account.requests == {"admitted": 4, "refused": 1}


async def test_requests_at_once_are_refused_while_others_run(state: State) -> None:
    account = Accounts(state).of(key_of(concurrency=2))
    async with account.charge(1), account.charge(1):
        with pytest.raises(RateLimitedError, match="2 requests at once"):
            await send(account, 1)
    await send(account, 1)


async def test_requests_at_once_are_those_of_all_processes(state: State) -> None:
    first, second = Accounts(state), Accounts(state)
    one, other = first.of(key_of(concurrency=2)), second.of(key_of(concurrency=2))
    async with one.charge(1):
        async with other.charge(1):
            for account in (one, other):
                with pytest.raises(RateLimitedError, match="2 requests at once"):
                    await send(account, 1)
        with pytest.raises(RateLimitedError):
            await send(one, 1)  # the other process still holds the place
        await second.write()
        await send(one, 1)
    await first.close()
    await second.close()
    assert UsageStore(state, "reader").lease_slot("id-0", 0, 1)


def fail(*_: object) -> int:
    """A call of a database that does not answer."""
    raise OperationalError("", {}, Exception())


async def test_a_database_that_does_not_answer_refuses_requests_and_loses_no_count(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts = Accounts(state)
    account = accounts.of(key_of())
    await send(account, 10)
    with monkeypatch.context() as patch:
        patch.setattr(UsageStore, "write", fail)
        patch.setattr(UsageStore, "lease", fail)
        await accounts.write()
        with pytest.raises(NotReadyError):
            await send(account, PORTION)
    await accounts.close()
    assert UsageStore(state, "reader").used("id-0", await month_of(Accounts(state))) == 10


async def test_final_counts_that_the_database_does_not_take_end_in_the_log(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server goes on with its stop."""
    accounts = Accounts(state)
    await send(accounts.of(key_of()), 10)
    monkeypatch.setattr(UsageStore, "close", fail)
    with capture_logs() as logs:
        await accounts.close()
    assert [log["keys"] for log in logs if log["event"] == "key_counts_lost"] == [1]


async def test_without_a_database_nothing_is_limited_but_requests_at_once() -> None:
    account = Accounts(None).of(key_of(concurrency=1))
    await send(account, 10**9)
    async with account.charge(1):
        with pytest.raises(RateLimitedError):
            await send(account, 1)
    assert await used(account) == 10**9 + 1


async def test_metrics_have_a_bounded_number_of_names(state: State) -> None:
    accounts = Accounts(state)
    for number in range(MAX_NAMES + 5):
        await send(accounts.of(key_of(1000 + number)), 2)
    requests, characters = KeyMetrics(accounts).collect()
    values = {sample.labels["key"]: sample.value for sample in characters.samples}
    assert len(values) == MAX_NAMES + 1
    assert (values["name-1000"], values[OTHER_KEYS]) == (2, 10)
    assert sum(sample.value for sample in requests.samples) == MAX_NAMES + 5
