"""Request streams of the clients: no request is lost or answered twice when streams break."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from protos.translation_pb2 import TranslateManyResponse
from serve.api.grpc_call import rich_status, trailers
from serve.clients.aio import AsyncTranslationClient
from serve.clients.client import TranslationClient
from serve.clients.errors import (
    BadRequestError,
    CallError,
    NoSuchModelError,
    ServerFailedError,
    TooLateError,
    UnavailableError,
    stream_error,
)
from serve.clients.many import MAX_FRUITLESS_TRIES, ManyItem, Window
from serve.errors import DrainingError, InternalError
from serve.translation.fields import SearchFields
from tests.serve.clients.test_translation_client import (
    IMPATIENT,
    PATIENT,
    Ask,
    ask,
    ask_async,
    ask_blocking,
    closed_port,
)
from tests.support.live import LONG_TEXT, GatedModel, LiveService, eventually, run_service

__all__ = ["ask"]  # the fixture

TEXTS = [f"alpha {'beta ' * (number % 7)}house." for number in range(100)]


def test_every_item_gets_its_own_result(live: LiveService, ask: Ask) -> None:
    short = SearchFields(max_target_tokens=1)
    items: list[ManyItem | str] = [
        ManyItem(text, {"options": short} if i % 2 else {}, i) for i, text in enumerate(TEXTS)
    ]
    results = ask(live.grpc_target, PATIENT, "translate_many", [*items, "a text alone"])
    assert Counter(result.item.tag for result in results) == Counter([*range(100), None])
    expected = [each.text for each in ask(live.grpc_target, PATIENT, "translate", TEXTS[:8]).translations]
    found = {result.item.tag: result.get().translations[0] for result in results}
    assert [found[tag].text for tag in range(0, 8, 2)] == expected[::2]
    assert max(found[tag].target_tokens for tag in range(1, 100, 2)) == 1


def test_without_items_no_call_is_made(ask: Ask) -> None:
    """The blocking client makes no call; the asyncio client must call before it reads items."""
    if ask is ask_blocking:
        assert ask(closed_port(), IMPATIENT, "translate_many", []) == []


def test_what_is_wrong_with_an_item_is_its_result(live: LiveService, ask: Ask) -> None:
    items = [ManyItem(["fine", " "]), ManyItem("fine", {"model": "none"}), ManyItem("fine")]
    results = {id(each.item): each for each in ask(live.grpc_target, PATIENT, "translate_many", items)}
    blank, nobody, fine = (results[id(item)] for item in items)
    assert isinstance(blank.error, BadRequestError)
    assert blank.error.violations[0].field == "text[1]"
    assert isinstance(nobody.error, NoSuchModelError)
    assert fine.error is None
    with pytest.raises(BadRequestError):
        blank.get()


def test_items_may_have_less_time_than_the_call(gated: LiveService, model: GatedModel, ask: Ask) -> None:
    model.gate.clear()
    (result,) = ask(gated.grpc_target, PATIENT, "translate_many", [ManyItem(LONG_TEXT, {"timeout_seconds": 0.05})])
    assert isinstance(result.error, TooLateError)


def test_all_items_together_have_the_time_of_the_call(gated: LiveService, model: GatedModel, ask: Ask) -> None:
    """Client or server may notice the deadline first."""
    model.gate.clear()
    with pytest.raises(TooLateError):
        [each.get() for each in ask(gated.grpc_target, PATIENT, "translate_many", [LONG_TEXT], timeout_seconds=0.2)]
    gated.settle()


def test_only_so_many_items_are_taken_ahead(gated: LiveService) -> None:
    taken: list[int] = []

    def items() -> Iterator[str]:
        for number in range(50):
            taken.append(number)
            yield "alpha"

    with TranslationClient.open(gated.grpc_target, PATIENT) as client:
        results = client.translate_many(items(), in_flight=4)
        next(results)
        assert len(taken) <= 5
        assert len(list(results)) == 49


def test_items_may_come_at_any_time(live: LiveService) -> None:
    """An item depends on an earlier answer, so the client must not wait for further items."""

    async def converse() -> list[Any]:
        answers: asyncio.Queue[str] = asyncio.Queue()
        answers.put_nowait("alpha beta.")

        async def questions() -> AsyncIterator[str]:
            for _ in range(5):
                yield await answers.get() or "one"

        results = []
        async with (
            AsyncTranslationClient.open(live.grpc_target, PATIENT) as client,
            aclosing(client.translate_many(questions())) as stream,
        ):
            async for result in stream:
                results.append(result)
                answers.put_nowait("two three.")
        return results

    assert len(asyncio.run(converse())) == 5


def test_a_fault_of_the_items_themselves_is_raised_behind_the_results(live: LiveService, ask: Ask) -> None:
    def items() -> Iterator[str]:
        yield "alpha"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ask(live.grpc_target, PATIENT, "translate_many", items())


def test_an_early_stop_cancels_the_items_in_flight(gated: LiveService, model: GatedModel, ask: Ask) -> None:
    async def stop_async() -> None:
        async with (
            AsyncTranslationClient.open(gated.grpc_target, PATIENT) as client,
            aclosing(client.translate_many([LONG_TEXT] * 9)) as results,
        ):
            await anext(results)
            model.gate.clear()

    if ask is ask_async:
        asyncio.run(stop_async())
    else:
        with TranslationClient.open(gated.grpc_target, PATIENT) as client:
            results = client.translate_many([LONG_TEXT] * 9)
            next(results)
            model.gate.clear()
            del results
    gated.settle()
    model.gate.set()
    eventually(lambda: gated.metric("sequences_running") + gated.metric("sequences_waiting") == 0)


def test_nothing_is_lost_when_a_server_shuts_down(bundle_path: Path, ask: Ask) -> None:
    """Another server gets the unread items, and each item is answered exactly once."""
    model = GatedModel(1)
    with run_service(bundle_path, [model]) as going, run_service(bundle_path) as staying:
        model.stepping.clear()

        def items() -> Iterator[ManyItem]:
            for number, text in enumerate(TEXTS):
                if number == 60:
                    going.stop()
                yield ManyItem(text, tag=number)

        target = f"ipv4:{going.grpc_target},{staying.grpc_target}"
        results = ask(target, PATIENT, "translate_many", items(), in_flight=8)
    assert Counter(result.item.tag for result in results) == Counter(range(100))
    assert [result.error for result in results if result.error is not None] == []
    assert min(live.metric("requests_total", method="translate_many", outcome="ok") for live in (going, staying)) > 0


def test_nothing_is_lost_or_done_twice_when_connections_get_too_old(bundle_path: Path, ask: Ask) -> None:
    model = GatedModel(1)
    ages: dict[str, Any] = {"grpc_max_connection_age_seconds": 0.1}
    with run_service(bundle_path, [model], **ages) as live:
        model.on_step = lambda: time.sleep(0.002)
        items = [ManyItem(LONG_TEXT, tag=tag) for tag in range(12)]
        results = ask(live.grpc_target, PATIENT, "translate_many", items)
        live.settle()
        assert live.metric("requests_total", method="translate_many", outcome="ok") == 12
        assert live.metric("requests_total", method="translate_many", outcome="cancelled") == 0
    assert Counter(result.item.tag for result in results) == Counter(range(12))
    assert [result.error for result in results if result.error is not None] == []


def test_without_retries_a_stream_that_breaks_is_an_error(live: LiveService, ask: Ask) -> None:
    def items() -> Iterator[str]:
        yield from TEXTS[:5]
        live.stop()
        live.join()
        yield "more"

    with pytest.raises(UnavailableError):
        ask(live.grpc_target, replace(IMPATIENT), "translate_many", items(), in_flight=1)


def unavailable(retry_after_seconds: float | None = None) -> CallError:
    error = UnavailableError(grpc.StatusCode.UNAVAILABLE, "gone")
    error.retry_after_seconds = retry_after_seconds
    return error


def test_tries_that_bring_nothing_are_given_up() -> None:
    unanswered = Unanswered()
    unanswered.add("alpha")
    pauses = [unanswered.pause_seconds(unavailable(), None, retries=True) for _ in range(MAX_FRUITLESS_TRIES - 1)]
    assert pauses == pytest.approx([0.1, 0.3, 0.9, 2.7])
    with pytest.raises(UnavailableError):
        unanswered.pause_seconds(unavailable(), None, retries=True)


def test_a_server_that_wants_to_be_asked_again_is_asked_for_a_minute() -> None:
    unanswered = Unanswered()
    unanswered.add("alpha")
    assert [unanswered.pause_seconds(unavailable(1.0), None, retries=True) for _ in range(59)] == [1.0] * 59
    with pytest.raises(UnavailableError):
        unanswered.pause_seconds(unavailable(1.0), None, retries=True)


def test_an_answer_starts_the_count_of_tries_again() -> None:
    unanswered = Unanswered()
    for _ in range(2 * MAX_FRUITLESS_TRIES):
        first, _ = unanswered.add("alpha"), unanswered.add("beta")
        assert unanswered.pause_seconds(unavailable(), None, retries=True) == pytest.approx(0.1)
        unanswered.take(TranslateManyResponse(id=first.id))


def test_a_break_without_unanswered_items_is_no_error() -> None:
    unanswered = Unanswered()
    pauses = {unanswered.pause_seconds(unavailable(), None, retries=True) for _ in range(2 * MAX_FRUITLESS_TRIES)}
    assert pauses == {0.1}


def test_the_pause_is_the_one_that_the_server_wants_if_there_is_time_for_it() -> None:
    unanswered = Unanswered()
    assert unanswered.pause_seconds(unavailable(1.5), None, retries=True) == 1.5
    with pytest.raises(UnavailableError):
        unanswered.pause_seconds(unavailable(1.5), time.monotonic() + 1, retries=True)


def test_the_error_of_an_item_is_read_from_its_status() -> None:
    unanswered = Unanswered()
    message = unanswered.add("alpha")
    result = unanswered.take(TranslateManyResponse(id=message.id, error=rich_status(DrainingError("going"), "id-7")))
    assert isinstance(result.error, UnavailableError)
    assert (result.error.reason, result.error.retry_after_seconds, result.error.request_id) == ("DRAINING", 1.0, "id-7")


@pytest.mark.parametrize(
    ("sent", "kind"),
    [((), UnavailableError), (trailers("id", InternalError("it failed")), ServerFailedError)],
    ids=["by nobody", "by the server"],
)
def test_an_internal_error_that_no_server_sent_is_a_lost_connection(
    sent: tuple[tuple[str, str | bytes], ...], kind: type[CallError]
) -> None:
    status, metadata = grpc.StatusCode.INTERNAL, grpc.aio.Metadata
    assert isinstance(stream_error(grpc.aio.AioRpcError(status, metadata(), metadata(*sent), "it failed")), kind)
