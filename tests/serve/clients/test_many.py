"""Request streams of the clients: no request is lost or answered twice when streams break."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
import pytest

from dragoman.protos.translation_pb2_grpc import TranslationServiceServicer, add_TranslationServiceServicer_to_server
from dragoman.serve.clients import errors
from dragoman.serve.clients.aio import AsyncTranslationClient
from dragoman.serve.clients.client import TranslationClient
from dragoman.serve.clients.many import INVITED_RETRIES, ManyItem, Window
from dragoman.serve.clients.messages import Asking, Timing
from dragoman.serve.errors import InternalError
from dragoman.serve.grpc.call import trailers
from dragoman.serve.translation.fields import SearchFields
from tests.serve.clients.test_translation_client import (
    IMPATIENT,
    PATIENT,
    Ask,
    ask,
    ask_async,
    ask_blocking,
    closed_port,
)
from tests.support.fake_bundles import LONG_TEXT
from tests.support.live import WAIT_SECONDS, GatedModel, LiveService, eventually, run_service

__all__ = ["ask"]  # the fixture

TEXTS = [f"alpha {'beta ' * (number % 7)}house." for number in range(100)]


def test_every_item_gets_its_own_result(live: LiveService, ask: Ask) -> None:
    short = SearchFields(max_target_tokens=1)
    items = [ManyItem(text, {"options": short} if i % 2 else {}, i) for i, text in enumerate(TEXTS)]
    results = ask(live.grpc_target, PATIENT, "translate_many", [*items, "a text alone"])
    assert Counter(result.item.tag for result in results) == Counter([*range(100), None])
    expected = [translation.text for translation in ask(live.grpc_target, PATIENT, "translate", TEXTS[:8]).translations]
    found = {result.item.tag: result.get().translations[0] for result in results}
    assert [found[tag].text for tag in range(0, 8, 2)] == expected[::2]
    assert max(found[tag].target_tokens for tag in range(1, 100, 2)) == 1


def test_without_items_no_call_is_made(ask: Ask) -> None:
    assert ask(closed_port(), IMPATIENT, "translate_many", []) == []


def test_the_error_of_an_item_is_its_result(live: LiveService, ask: Ask) -> None:
    items = [ManyItem(["fine", " "]), ManyItem("fine", {"model": "none"}), ManyItem("fine")]
    results = {id(item.item): item for item in ask(live.grpc_target, PATIENT, "translate_many", items)}
    blank, unknown, fine = (results[id(item)] for item in items)
    assert (type(blank.error), type(unknown.error)) == (errors.BadRequestError, errors.NoSuchModelError)
    assert fine.error is None
    assert [violation.field for violation in blank.error.violations] == ["text[1]"]
    with pytest.raises(errors.BadRequestError):
        blank.get()


@pytest.mark.parametrize("limits", [({"timeout_seconds": 0.05}, {}), ({}, {"timeout_seconds": 0.2})])
def test_an_item_and_the_whole_call_have_time_limits(
    gated: LiveService, model: GatedModel, ask: Ask, limits: tuple[Asking, Timing]
) -> None:
    """Client or server may notice the deadline of the call first."""
    model.gate.clear()
    asking, timing = limits
    with pytest.raises(errors.TooLateError):
        ask(gated.grpc_target, PATIENT, "translate_many", [ManyItem(LONG_TEXT, asking)], **timing)[0].get()
    gated.settle()


def test_a_call_without_items_ends_at_its_deadline(ask: Ask) -> None:
    ended = threading.Event()

    def blocking() -> Iterator[str]:
        ended.wait(WAIT_SECONDS)
        yield from ()

    async def waiting() -> AsyncIterator[str]:
        await asyncio.sleep(WAIT_SECONDS)
        yield ""

    items = blocking() if ask is ask_blocking else waiting()
    with pytest.raises(errors.TooLateError):
        ask(closed_port(), PATIENT, "translate_many", items, timeout_seconds=0.1)
    ended.set()


def test_a_full_window_takes_no_items(gated: LiveService) -> None:
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


@pytest.mark.anyio
async def test_an_item_may_depend_on_an_earlier_result(live: LiveService) -> None:
    """The client must not wait for further items before it returns a result."""
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
    assert len(results) == 5


def test_an_error_of_the_iterator_is_raised_after_the_results(live: LiveService, ask: Ask) -> None:
    def items() -> Iterator[str]:
        yield "alpha"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ask(live.grpc_target, PATIENT, "translate_many", items())


def test_an_exit_of_the_iterator_leaves_the_blocking_client_usable(live: LiveService) -> None:
    def items() -> Iterator[str]:
        yield TEXTS[0]
        raise SystemExit(3)

    with TranslationClient.open(live.grpc_target, PATIENT) as client:
        with pytest.raises(SystemExit):
            list(client.translate_many(items()))
        assert len(client.translate(TEXTS[:2]).translations) == 2


def test_closing_the_blocking_client_ends_calls_that_wait_for_items(live: LiveService) -> None:
    requested, ended, release = threading.Event(), threading.Event(), threading.Event()

    def items() -> Iterator[str]:
        requested.set()
        release.wait(WAIT_SECONDS)
        yield from ()

    def call(client: TranslationClient) -> None:
        with pytest.raises(errors.ServerFailedError):
            list(client.translate_many(items()))
        ended.set()

    with TranslationClient.open(live.grpc_target, PATIENT) as client:
        calling = threading.Thread(target=call, args=(client,))
        calling.start()
        assert requested.wait(WAIT_SECONDS)
    assert ended.wait(WAIT_SECONDS)
    release.set()
    calling.join(WAIT_SECONDS)
    with pytest.raises(errors.ServerFailedError):
        client.translate(TEXTS[0])


def test_a_window_without_places_is_refused(live: LiveService) -> None:
    with TranslationClient.open(live.grpc_target, PATIENT) as client, pytest.raises(ValueError, match="in_flight"):
        list(client.translate_many(TEXTS, in_flight=0))


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
    ages: dict[str, Any] = {"grpc_max_connection_age_seconds": 0.3}
    with run_service(bundle_path, [model], **ages) as live:
        model.on_step = lambda: time.sleep(0.003)
        results = ask(live.grpc_target, PATIENT, "translate_many", [ManyItem(LONG_TEXT, tag=tag) for tag in range(12)])
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

    with pytest.raises(errors.UnavailableError):
        ask(live.grpc_target, IMPATIENT, "translate_many", items(), in_flight=1)


class EndingServicer(TranslationServiceServicer):
    """Ends each request stream after its first request, without a response."""

    def TranslateMany(self, request_iterator: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        context.send_initial_metadata(())
        next(request_iterator)
        return iter(())


def test_a_stream_that_ends_without_all_responses_has_failed(ask: Ask) -> None:
    """The client may notice the end when it sends the next request."""
    server = grpc.server(ThreadPoolExecutor(1))
    add_TranslationServiceServicer_to_server(EndingServicer(), server)  # type: ignore[abstract] # others are unused
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with pytest.raises(errors.UnavailableError, match=r"without all responses|the connection was lost"):
        ask(f"127.0.0.1:{port}", IMPATIENT, "translate_many", TEXTS[:2])
    server.stop(None)


def test_only_an_invitation_of_the_server_is_followed_if_the_client_asks_for_that() -> None:
    """The stream right after it may still have been opened on the closing connection."""
    invitation, lost = (errors.UnavailableError(grpc.StatusCode.UNAVAILABLE, "gone") for _ in range(2))
    invitation.retry_after_seconds = 1.5
    window = Window((), 1, INVITED_RETRIES)
    assert [window.pause_seconds(error, None) for error in (invitation, invitation, lost)] == [1.5, 1.5, 0.9]
    with pytest.raises(errors.UnavailableError):
        window.pause_seconds(lost, None)


def test_a_client_that_waits_for_invitations_replaces_one_lost_connection_without_it() -> None:
    """A write to a closing connection loses the invitation."""
    lost = errors.UnavailableError(grpc.StatusCode.UNAVAILABLE, "the connection was lost")
    window = Window((), 1, INVITED_RETRIES)
    assert window.pause_seconds(lost, None) == pytest.approx(0.1)
    with pytest.raises(errors.UnavailableError):
        window.pause_seconds(lost, None)


def pauses(tries: int, retry_after_seconds: float | None = None, deadline_seconds: float | None = None) -> list[float]:
    """Returns the pauses after streams in a row without any answer."""
    error = errors.UnavailableError(grpc.StatusCode.UNAVAILABLE, "gone")
    error.retry_after_seconds = retry_after_seconds
    window = Window((), 1)
    return [window.pause_seconds(error, deadline_seconds) for _ in range(tries)]


def test_pauses_grow_until_the_client_gives_up() -> None:
    assert pauses(4) == pytest.approx([0.1, 0.3, 0.9, 2.7])
    with pytest.raises(errors.UnavailableError):
        pauses(5)


def test_the_retry_delay_of_the_server_replaces_the_pause() -> None:
    assert pauses(59, 1.5) == [1.5] * 59
    with pytest.raises(errors.UnavailableError):
        pauses(60, 1.5)
    with pytest.raises(errors.UnavailableError):
        pauses(1, 1.5, time.monotonic() + 1)


@pytest.mark.parametrize(
    ("sent", "kind"),
    [((), errors.UnavailableError), (trailers("id", InternalError("it failed")), errors.ServerFailedError)],
    ids=["by gRPC", "by the server"],
)
def test_an_internal_error_of_grpc_is_a_lost_connection(
    sent: tuple[tuple[str, str | bytes], ...], kind: type[errors.CallError]
) -> None:
    status, metadata = grpc.StatusCode.INTERNAL, grpc.aio.Metadata
    assert isinstance(errors.stream_error(grpc.aio.AioRpcError(status, metadata(), metadata(*sent), "it failed")), kind)
