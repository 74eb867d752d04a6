"""The blocking gRPC client: the asyncio client on an event loop in a thread of its own.

Both clients share one implementation. A blocking client generated from the asyncio code would be a second one, because
a request stream sends and receives concurrently, with tasks there and threads here. Each step of a call switches to
the thread of the event loop and back.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import partial
from typing import Self, TypeVar, Unpack

import grpc
from anyio import CapacityLimiter, to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

from dragoman.serve.clients.aio import AsyncTranslationClient
from dragoman.serve.clients.channel import DEFAULTS, ClientSettings
from dragoman.serve.clients.errors import ServerFailedError
from dragoman.serve.clients.many import IN_FLIGHT, ManyItem, ManyResult
from dragoman.serve.clients.messages import Asking, Texts, Timing
from dragoman.serve.translation.detection import DetectResponse
from dragoman.serve.translation.response import ScoreResponse, TranslationDelta, TranslationResponse

T = TypeVar("T")


class _ItemsError(Exception):
    """The iterable of items raised; the cause, which may be a SystemExit, must not reach the event loop."""


class TranslationClient:
    """Translates over one channel. Thread-safe. Methods and errors are those of `AsyncTranslationClient`.

    If another thread closes the client, calls end with `ServerFailedError` and code CANCELLED.
    """

    def __init__(self, client: AsyncTranslationClient, portal: BlockingPortal) -> None:
        self._client = client
        self._portal = portal

    @classmethod
    @contextmanager
    def open(cls, target: str, settings: ClientSettings = DEFAULTS) -> Iterator[Self]:
        """Opens a channel to any gRPC target, such as `host:port`, and closes it, which ends all calls.

        Raises OSError if a file of the settings cannot be read.
        """
        with start_blocking_portal(name="translation-client") as portal:
            try:
                with portal.wrap_async_context_manager(AsyncTranslationClient.open(target, settings)) as client:
                    yield cls(client, portal)
            finally:
                # A call of another thread may wait for its next item without a limit.
                portal.call(portal.stop, True)

    def translate(self, texts: Texts, **asking: Unpack[Asking]) -> TranslationResponse:
        """Returns one translation per text."""
        return self._run(partial(self._client.translate, texts, **asking))

    def stream(self, texts: Texts, **asking: Unpack[Asking]) -> Iterator[TranslationDelta | TranslationResponse]:
        """Yields deltas of the translations, then the response that `translate` returns."""
        return self._iterate(self._client.stream(texts, **asking))

    def score(self, pairs: Iterable[tuple[str, str]], **asking: Unpack[Asking]) -> ScoreResponse:
        """Returns a score per pair of text and translation; ignores prefixes, options and pivot."""
        return self._run(partial(self._client.score, list(pairs), **asking))

    def detect(self, texts: Texts, **timing: Unpack[Timing]) -> DetectResponse:
        """Returns the likely languages of each text."""
        return self._run(partial(self._client.detect, texts, **timing))

    def translate_many(
        self, items: Iterable[ManyItem | str], *, in_flight: int = IN_FLIGHT, **timing: Unpack[Timing]
    ) -> Iterator[ManyResult]:
        """Yields the result of each item as soon as it arrives, in any order; another thread iterates over `items`."""
        return self._iterate(self._client.translate_many(_in_thread(iter(items)), in_flight=in_flight, **timing))

    def _run(self, function: Callable[[], Awaitable[T]]) -> T:
        try:
            future = self._portal.start_task_soon(function)
        except RuntimeError as error:
            raise _closed() from error
        try:
            return future.result()
        except _ItemsError as error:
            raise error.args[0] from None
        except (CancelledError, grpc.aio.UsageError) as error:
            raise _closed() from error
        except BaseException:
            future.cancel()  # Ctrl-C interrupts only this thread
            raise

    def _iterate(self, results: AsyncGenerator[T]) -> Iterator[T]:
        try:
            while (result := self._run(lambda: anext(results, None))) is not None:
                yield result
        finally:
            # Fails if the client is closed or the call is being canceled: both end the call.
            with suppress(RuntimeError, ServerFailedError):
                self._run(results.aclose)


def _closed() -> ServerFailedError:
    return ServerFailedError(grpc.StatusCode.CANCELLED, "the client is closed")


async def _in_thread(items: Iterator[T]) -> AsyncIterator[T]:
    """Yields items taken in a worker thread, where the iterator may block."""
    limiter = CapacityLimiter(1)
    while (item := await to_thread.run_sync(_next, items, abandon_on_cancel=True, limiter=limiter)) is not None:
        yield item


def _next(items: Iterator[T]) -> T | None:
    try:
        return next(items, None)
    except BaseException as error:
        raise _ItemsError(error) from error
