"""Calls of parsers in limited processes: results, refusals, every limit, and processes that die."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from benchmarks.harness.process import proportional_bytes
from dragoman.serve.errors import DeadlineExceededError, InternalError, RequestTooLargeError
from dragoman.serve.sandbox.frames import Item
from dragoman.serve.sandbox.host import ParserHost
from dragoman.serve.sandbox.sandbox import MAX_TRIES, ParserUnavailableError, Sandbox
from dragoman.serve.sandbox.template import MAX_CALLS_PER_WORKER
from dragoman.serve.sandbox.worker import MAX_KEPT_BYTES, MAX_SMALL_INPUT_BYTES, MEBIBYTE, Limits, Purpose, Refusal
from tests.support.live import eventually
from tests.support.processes import children
from tests.support.sandboxes import add_parsers, is_running, make_pipe, open_sandbox, shared_template, template_of

pytestmark = pytest.mark.anyio
LIMITS = Limits(memory_bytes=64 * MEBIBYTE, cpu_seconds=60, wall_seconds=600.0, output_bytes=64 * MEBIBYTE)
MAX_IDLE_PROCESSES = 2
MAX_IDLE_BYTES = 60 * MEBIBYTE


@pytest.fixture(scope="module", autouse=True)
def _hostile_parsers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        add_parsers(patch, alone=True)
        with shared_template():
            yield


@pytest.fixture
def own_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.serve.sandbox.sandbox.ParserHost", ParserHost)


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with open_sandbox() as opened:
        yield opened


def _same(item: Item) -> Item:
    return item


async def call(
    sandbox: Sandbox, name: str, *items: Item, limits: Limits = LIMITS, purpose: Purpose = "documents"
) -> list[Item]:
    return await sandbox.call(f"test.{name}", items, purpose=purpose, limits=limits, convert=_same)


async def until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(eventually, condition)


async def until_workers(sandbox: Sandbox, count: int) -> None:
    await until(lambda: len(children(template_of(sandbox))) == count)


async def test_items_come_back_in_their_order(sandbox: Sandbox) -> None:
    items = ["a", 1, None, ["\ud800", {"b": True}], b"", b"x" * 1_000_000, "ü" * 100_000]
    assert await call(sandbox, "echo", *items) == items


async def test_a_refusal_has_the_arguments_of_the_parser(sandbox: Sandbox) -> None:
    with pytest.raises(Refusal) as caught:
        await call(sandbox, "refuse", 3, "expected less")
    assert caught.value.args == (3, "expected less")


async def test_an_error_of_a_parser_is_logged_without_its_values(sandbox: Sandbox) -> None:
    with capture_logs() as lines, pytest.raises(InternalError):
        await call(sandbox, "fail")
    (line,) = lines
    assert line["event"] == "parser_failed"
    assert "KeyError" in line["problem"]
    assert "hostile_parsers.py" in line["problem"]
    assert "secret" not in line["problem"]


@pytest.mark.usefixtures("own_template")
@pytest.mark.parametrize(
    ("name", "limits", "named"),
    [
        ("spin", replace(LIMITS, cpu_seconds=1), "1 s of CPU time"),
        ("sleep", replace(LIMITS, wall_seconds=0.2), "more than 0.2 s"),
        ("flood", replace(LIMITS, output_bytes=MEBIBYTE), "a result of more than 1 MiB"),
    ],
)
async def test_a_parser_beyond_a_limit_is_killed_and_the_error_names_the_limit(
    sandbox: Sandbox, name: str, limits: Limits, named: str
) -> None:
    with pytest.raises(RequestTooLargeError, match=named):
        await call(sandbox, name, limits=limits)
    await until_workers(sandbox, 1)  # only the spare worker is left
    assert await call(sandbox, "echo", "a") == ["a"]


async def test_a_parser_gets_its_memory_and_no_more(sandbox: Sandbox) -> None:
    assert await call(sandbox, "allocate", 48 * MEBIBYTE) == [48 * MEBIBYTE]
    with pytest.raises(RequestTooLargeError, match="64 MiB of memory"):
        await call(sandbox, "allocate", 65 * MEBIBYTE)


async def test_a_worker_has_no_secrets_no_sockets_and_no_files(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DRAGOMAN_ADMIN_KEY", "secret")
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "file").open("rb") as opened:
        os.set_inheritable(opened.fileno(), True)
        (found,) = await call(sandbox, "describe")
    assert found == {
        "environment": "",
        "sockets": 2,  # of the call, and the one on which it came
        "others": ["/dev/null"],
        "entries": [],
        "no new privileges": "1",
        "core": 0,
        "file size": 0,
    }


async def test_a_worker_writes_no_file(sandbox: Sandbox, tmp_path: Path) -> None:
    assert await call(sandbox, "write", str(tmp_path / "file")) == ["File too large"]


async def process_ids(sandbox: Sandbox, *calls: Sequence[Item], limits: Limits = LIMITS) -> list[Item]:
    """Returns the processes of calls of a parser, one call after the other."""
    return [(await call(sandbox, *items, limits=limits))[-1] for items in calls]


@pytest.mark.usefixtures("own_template")
async def test_small_calls_share_a_process_until_it_has_had_its_number(sandbox: Sandbox) -> None:
    found = await process_ids(sandbox, *[("process", "a")] * (MAX_CALLS_PER_WORKER + 1))
    assert len(set(found[:-1])) == 1
    assert found[-1] != found[0]


@pytest.mark.parametrize("items", [("a" * (MAX_SMALL_INPUT_BYTES + 1),), ("a", 2 * MAX_KEPT_BYTES)])
async def test_a_call_with_much_input_or_memory_has_the_last_use_of_its_process(sandbox: Sandbox, items: Any) -> None:
    first, second, third = await process_ids(sandbox, ("process", "a"), ("process", *items), ("process", "a"))
    assert first == second != third


async def test_a_parser_with_an_error_has_the_last_use_of_its_process_but_a_refusal_is_none(sandbox: Sandbox) -> None:
    (first,) = await process_ids(sandbox, ("process", "a"))
    with pytest.raises(Refusal):
        await call(sandbox, "refuse")
    assert await process_ids(sandbox, ("process", "a")) == [first]
    with pytest.raises(InternalError):
        await call(sandbox, "fail")
    assert await process_ids(sandbox, ("process", "a")) != [first]


async def test_each_call_of_a_process_has_its_own_limits(sandbox: Sandbox) -> None:
    small = replace(LIMITS, memory_bytes=8 * MEBIBYTE, cpu_seconds=1)
    await process_ids(sandbox, *[("process", "a")] * 2, limits=small)
    assert await call(sandbox, "allocate", 48 * MEBIBYTE) == [48 * MEBIBYTE]
    await process_ids(sandbox, ("process", "a"))
    with pytest.raises(RequestTooLargeError, match="8 MiB of memory"):
        await call(sandbox, "allocate", 48 * MEBIBYTE, limits=small)
    await process_ids(sandbox, ("process", "a"))
    with pytest.raises(RequestTooLargeError, match="1 s of CPU time"):
        await call(sandbox, "spin", limits=small)


async def test_a_parser_that_dies_each_time_is_called_three_times(sandbox: Sandbox) -> None:
    with capture_logs() as lines, pytest.raises(InternalError, match=f"ended {MAX_TRIES} times"):
        await call(sandbox, "die")
    assert [line["event"] for line in lines] == ["parser_died"] * MAX_TRIES


@pytest.mark.usefixtures("own_template")
@pytest.mark.parametrize("killed", ["worker", "template"])
async def test_a_call_whose_process_is_killed_is_made_again(sandbox: Sandbox, tmp_path: Path, killed: str) -> None:
    begun, end = make_pipe(tmp_path), tmp_path / "end"
    calling = asyncio.create_task(call(sandbox, "wait", str(begun), str(end)))
    worker = int(await asyncio.to_thread(begun.read_text))
    os.kill(worker if killed == "worker" else template_of(sandbox), signal.SIGKILL)
    second = int(await asyncio.to_thread(begun.read_text))
    end.touch()
    assert await calling == ["done"]
    assert second != worker


@pytest.mark.usefixtures("own_template")
async def test_a_killed_idle_worker_is_replaced(sandbox: Sandbox) -> None:
    await call(sandbox, "echo")
    await until_workers(sandbox, 1)
    (idle,) = children(template_of(sandbox))
    os.kill(idle, signal.SIGKILL)
    assert await call(sandbox, "echo", "a") == ["a"]


async def test_a_canceled_call_ends_its_worker(sandbox: Sandbox, tmp_path: Path) -> None:
    begun = make_pipe(tmp_path)
    calling = asyncio.create_task(call(sandbox, "wait", str(begun), str(tmp_path / "never")))
    worker = int(await asyncio.to_thread(begun.read_text))
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await until(lambda: not is_running(worker))


async def test_purposes_do_not_wait_for_each_other(sandbox: Sandbox) -> None:
    spinning = asyncio.create_task(call(sandbox, "spin"))
    assert await call(sandbox, "echo", "a", purpose="forms") == ["a"]
    assert not spinning.done()
    spinning.cancel()
    await asyncio.gather(spinning, return_exceptions=True)


@pytest.mark.usefixtures("own_template")
async def test_a_canceled_call_that_waits_is_dropped(sandbox: Sandbox) -> None:
    first = asyncio.create_task(call(sandbox, "sleep"))
    await call(sandbox, "echo", purpose="forms")
    await until_workers(sandbox, 2)
    waiting = asyncio.create_task(call(sandbox, "sleep"))
    await asyncio.sleep(0)
    waiting.cancel()
    first.cancel()
    await asyncio.gather(first, waiting, return_exceptions=True)
    assert await call(sandbox, "echo", "a") == ["a"]


@pytest.mark.usefixtures("own_template")
async def test_an_idle_sandbox_is_two_small_processes(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    add_parsers(monkeypatch)
    await call(sandbox, "echo")
    await until_workers(sandbox, 1)
    processes = [template_of(sandbox), *children(template_of(sandbox))]
    assert len(processes) == MAX_IDLE_PROCESSES
    assert sum(map(proportional_bytes, processes)) < MAX_IDLE_BYTES


@pytest.mark.usefixtures("own_template")
async def test_a_closed_sandbox_leaves_no_process(sandbox: Sandbox) -> None:
    await call(sandbox, "echo")
    processes = [template_of(sandbox), *children(template_of(sandbox))]
    sandbox.close()
    await until(lambda: not any(map(is_running, processes)))


@pytest.mark.usefixtures("own_template")
async def test_calls_fail_with_a_reason_without_a_template(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/none")
        with pytest.raises(ParserUnavailableError, match="No such file"):
            await sandbox.check()
    await sandbox.check()
    assert await call(sandbox, "echo", "a") == ["a"]


async def test_a_call_ends_with_its_deadline(sandbox: Sandbox) -> None:
    soon = time.monotonic() + 0.1
    with pytest.raises(DeadlineExceededError):
        await sandbox.call("test.sleep", (), purpose="forms", limits=LIMITS, convert=_same, deadline_seconds=soon)


async def test_a_worker_that_sends_nonsense_gives_an_error(sandbox: Sandbox) -> None:
    def refuse(item: Item) -> Item:
        raise TypeError(item)

    with pytest.raises(InternalError):
        await sandbox.call("test.echo", ("a",), purpose="documents", limits=LIMITS, convert=refuse)
