"""HTTP of all hubs: bounded requests, retries and messages.

This module and `dragoman.hub.download` are the only ones that open connections. A hub adds no HTTP of its own; it
states how messages name it, reads its index or API with `read_answer`, and passes its files to `download`:

    access = HubAccess("argos:en-de", "the network and ARGOS_PACKAGE_INDEX")
    index = read_answer(access, f"{INDEX}/index.json", TypeAdapter(Index))
    download(access, [RemoteFile("en-de.argosmodel", index.link, index.size_bytes, index.sha256)], folder)

Every request has these bounds, whatever the hub sends:

- A connection opens in CONNECT_SECONDS; status and headers arrive in ANSWER_SECONDS, redirects included.
- A body brings MIN_WINDOW_BYTES in every STALL_SECONDS; an index or an answer of an API ends in MAX_ANSWER_SECONDS.
- An index or an answer has at most MAX_ANSWER_BYTES. A file has its stated size, and never more.
- Temporary failures are repeated up to MAX_ATTEMPTS times in a row, with a growing pause, or after the time that
  `Retry-After` states. If that is more than PATIENCE_SECONDS, the message states when to try again.

Every failure is a HubError: one line with the model, the address and what to do.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from importlib.metadata import version
from typing import TYPE_CHECKING, TypeVar

from pydantic import TypeAdapter, ValidationError

from dragoman.hub.names import HubError
from dragoman.hub.progress import report
from dragoman.model.errors import first_problem

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0
STALL_SECONDS = 30.0
MIN_WINDOW_BYTES = 30_000
MAX_ANSWER_SECONDS = 120.0
MAX_ANSWER_BYTES = 32 << 20
MAX_ATTEMPTS = 5
# An attempt that adds less to a file counts as failed in a row with the one before.
MIN_PROGRESS_BYTES = 1 << 20
FIRST_PAUSE_SECONDS = 1.0
PATIENCE_SECONDS = 60.0
TEMPORARY = (408, 429, 500, 502, 503, 504)
REFUSED = (401, 403)
# Servers without HEAD answer with these.
NO_HEAD = (405, 501)
# More is no time of waiting but an error of the hub.
MAX_RETRY_AFTER_SECONDS = 1e9
# Between two calls that show the progress.
SHOW_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class HubAccess:
    """How requests and messages name a hub: the model, what a user checks without an answer, and headers.

    A redirect to another host loses the authorization of the headers.
    """

    model: str
    settings: str
    headers: Mapping[str, str] = field(default_factory=dict)


class OfflineError(HubError):
    """HF_HUB_OFFLINE is set, which forbids requests to hubs."""


class StatusError(HubError):
    """A hub rejects a request for good, with a status of HTTP and a `code` of the header X-Error-Code, or empty."""

    def __init__(self, access: HubAccess, status: int, address: str, code: str) -> None:
        refused = "it refuses access, set or correct the token, and check the rights of its account"
        advice = refused if status in REFUSED else f"check {access.settings} and the name of the model"
        super().__init__(f"{access.model}: {address}: answers with status {status}: {advice}")
        self.status = status
        self.address = address
        self.code = code


class TemporaryError(HubError):
    """A failure that may pass.

    Attributes:
        problem: the failure, without a remedy.
        wait_seconds: the wait that the hub requests; 0 if it requests none.
        is_silence: True if the hub did not answer in time or has no connection: another attempt takes as long.
    """

    def __init__(self, access: HubAccess, problem: str, *, wait_seconds: float = 0.0, is_silence: bool = False) -> None:
        self.problem = f"{access.model}: {problem}"
        self.wait_seconds = wait_seconds
        self.is_silence = is_silence
        if wait_seconds:
            moment = datetime.now(UTC) + timedelta(seconds=wait_seconds)
            advice = f"it asks to wait {wait_seconds:,.0f} s: repeat the command after {moment:%Y-%m-%d %H:%M:%S} UTC"
        else:
            advice = f"check {access.settings}, then repeat the command; a download continues where it stopped"
        super().__init__(f"{self.problem}: {advice}")


class NoConnectionError(TemporaryError):
    """The address of a hub cannot be reached from this machine, as without a network; `reason` has the address."""

    def __init__(self, access: HubAccess, reason: str) -> None:
        super().__init__(access, f"no connection: {reason}", is_silence=True)
        self.reason = reason


def read_answer(access: HubAccess, url: str, adapter: TypeAdapter[T]) -> T:
    """Returns the content of an index or of an answer of an API.

    Raises HubError without a usable answer, StatusError if it is a rejection, OfflineError if HF_HUB_OFFLINE is set.
    """

    async def read(client: "httpx.AsyncClient") -> bytes:
        return (await with_retries(access, lambda: _read_whole(access, client, url, MAX_ANSWER_SECONDS, {})))[0]

    try:
        return adapter.validate_json(in_session(access, read))
    except ValidationError as error:
        problem = f"expected JSON as of a hub: {first_problem(error)}"
        raise HubError(f"{access.model}: {url}: {problem}: check {access.settings}") from error


def read_changed(access: HubAccess, url: str, kept: tuple[str, bytes], seconds: float) -> tuple[str, bytes]:
    """Returns ETag and content of an index, or those that are kept if it did not change; as `read_answer`, but once."""
    headers = {"if-none-match": kept[0]} if kept[0] else {}

    async def read(client: "httpx.AsyncClient") -> tuple[bytes, str]:
        with _temporary_errors(access):
            return await _read_whole(access, client, url, seconds, headers)

    try:
        content, etag = in_session(access, read)
    except StatusError as error:
        if headers and error.status == HTTPStatus.NOT_MODIFIED:
            return kept
        raise
    return etag, content


def read_size(access: HubAccess, url: str) -> int | None:
    """Returns the bytes of a file, None if not stated; raises HubError if the hub does not answer or lacks the file."""

    async def read_once(client: "httpx.AsyncClient") -> int | None:
        try:
            async with responding(access, client, "HEAD", url) as response:
                return stated_length(response)
        except StatusError as error:
            if error.status in NO_HEAD:
                return None
            raise

    async def read(client: "httpx.AsyncClient") -> int | None:
        return await with_retries(access, lambda: read_once(client))

    return in_session(access, read)


def in_session(
    access: HubAccess, function: Callable[["httpx.AsyncClient"], Awaitable[T]], show: Callable[[], None] = lambda: None
) -> T:
    """Returns the result of a function that sends requests; calls `show` several times per second, and at the end."""
    import httpx  # noqa: PLC0415 - the library takes long to import
    from huggingface_hub import constants  # noqa: PLC0415

    if constants.HF_HUB_OFFLINE:
        advice = (
            "unset HF_HUB_OFFLINE, or copy its bundle from a machine with network: `dragoman pull --to FOLDER NAME`"
        )
        raise OfflineError(f"{access.model}: not installed, and HF_HUB_OFFLINE is set: {advice}")
    headers = {"user-agent": f"dragoman/{version('dragoman')}", "accept-encoding": "identity", **access.headers}
    try:
        client = httpx.AsyncClient(
            headers=headers, timeout=httpx.Timeout(None, connect=CONNECT_SECONDS), follow_redirects=True
        )
    except (ValueError, ImportError, OSError) as error:
        advice = "correct the token, HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE or SSL_CERT_DIR"
        raise HubError(f"{access.model}: {error}: {advice}") from error

    async def run() -> T:
        async with client:
            work = asyncio.ensure_future(function(client))
            try:
                while not work.done():
                    await asyncio.wait({work}, timeout=SHOW_SECONDS)
                    show()
                return work.result()
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    return asyncio.run(run())


async def with_retries(
    access: HubAccess, attempt: Callable[[], Awaitable[T]], progress_bytes: Callable[[], int] = lambda: 0
) -> T:
    """Returns the result of an attempt, repeated after temporary failures.

    Args:
        progress_bytes: returns the bytes of earlier attempts that the next one keeps.

    Raises:
        TemporaryError: if too many attempts in a row fail, or the hub asks for a long wait.
    """
    failures = 0
    while True:
        before_bytes = progress_bytes()
        try:
            with _temporary_errors(access):
                return await attempt()
        except TemporaryError as error:
            gained_bytes = progress_bytes() - before_bytes
            failures = 1 if gained_bytes >= MIN_PROGRESS_BYTES else failures + 1
            pause_seconds = max(error.wait_seconds, FIRST_PAUSE_SECONDS * 2 ** (failures - 1))
            is_hopeless = error.is_silence and gained_bytes <= 0
            if failures >= MAX_ATTEMPTS or is_hopeless or pause_seconds > PATIENCE_SECONDS:
                raise
            report(f"{error.problem}: tries again in {pause_seconds:,.0f} s")
            await pause(pause_seconds)


async def pause(seconds: float) -> None:
    """Waits before the next attempt."""
    await asyncio.sleep(seconds)


@asynccontextmanager
async def responding(
    access: HubAccess, client: "httpx.AsyncClient", method: str, url: str, headers: Mapping[str, str] | None = None
) -> AsyncIterator["httpx.Response"]:
    """Yields a good response, unread; raises StatusError, TemporaryError if the hub may accept later, or HubError."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            response = await client.send(client.build_request(method, url, headers=headers), stream=True)
    except TimeoutError as error:
        raise TemporaryError(access, f"{url}: no answer in {ANSWER_SECONDS:g} s", is_silence=True) from error
    try:
        _check_status(access, response)
        yield response
    finally:
        await response.aclose()


async def receive(access: HubAccess, response: "httpx.Response", take: Callable[[bytes], None]) -> None:
    """Passes a body piece by piece to a function; raises TemporaryError if the hub stalls."""
    loop = asyncio.get_running_loop()
    window_bytes = 0
    try:
        async with asyncio.timeout(STALL_SECONDS) as stall:
            async for piece in response.aiter_raw():
                take(piece)
                window_bytes += len(piece)
                if window_bytes >= MIN_WINDOW_BYTES:
                    window_bytes = 0
                    stall.reschedule(loop.time() + STALL_SECONDS)
    except TimeoutError as error:
        problem = (
            f"{address_of(response.request.url)}: stalls: less than {MIN_WINDOW_BYTES:,} bytes in {STALL_SECONDS:g} s"
        )
        raise TemporaryError(access, problem, is_silence=True) from error


def stated_length(response: "httpx.Response") -> int | None:
    """Returns the length of a body as its header states it; None if it does not."""
    text = response.headers.get("content-length", "")
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


async def _read_whole(
    access: HubAccess, client: "httpx.AsyncClient", url: str, seconds: float, headers: Mapping[str, str]
) -> tuple[bytes, str]:
    """Returns an index or an answer that ends in some seconds, and its ETag."""
    content = bytearray()

    def take(piece: bytes) -> None:
        content.extend(piece)
        if len(content) > MAX_ANSWER_BYTES:
            problem = f"more than {MAX_ANSWER_BYTES:,} bytes, no index or answer of a hub is as long"
            raise HubError(f"{access.model}: {url}: {problem}: check {access.settings}")

    try:
        async with asyncio.timeout(seconds), responding(access, client, "GET", url, headers) as response:
            await receive(access, response, take)
    except TimeoutError as error:
        problem = f"{url}: the answer does not end in {seconds:g} s"
        raise TemporaryError(access, problem, is_silence=True) from error
    return bytes(content), response.headers.get("etag", "")


def _check_status(access: HubAccess, response: "httpx.Response") -> None:
    status, url = response.status_code, address_of(response.request.url)
    if status in TEMPORARY:
        wait_seconds = retry_after_seconds(response.headers.get("retry-after", ""))
        raise TemporaryError(access, f"{url}: answers with status {status}", wait_seconds=wait_seconds)
    if not response.is_success:
        raise StatusError(access, status, url, response.headers.get("x-error-code", ""))
    if response.headers.get("content-type", "").partition(";")[0].strip().lower() == "text/html":
        problem = "answers with a web page, as the login page of a network does"
        raise HubError(f"{access.model}: {url}: {problem}: check {access.settings}, then repeat the command")


def retry_after_seconds(text: str) -> float:
    """Returns the wait that a header Retry-After states as seconds or as a date; 0 for another text."""
    text = text.strip()
    if re.fullmatch(r"[0-9]+", text):
        return min(float(text), MAX_RETRY_AFTER_SECONDS)
    try:
        moment = parsedate_to_datetime(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        wait_seconds = (moment - datetime.now(UTC)).total_seconds()
    except (ValueError, OverflowError):
        return 0.0
    return min(max(wait_seconds, 0.0), MAX_RETRY_AFTER_SECONDS)


@contextmanager
def _temporary_errors(access: HubAccess) -> Iterator[None]:
    """Converts the errors of connections."""
    import httpx  # noqa: PLC0415 - the library takes long to import

    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
        raise NoConnectionError(access, _described(error)) from error
    except (httpx.UnsupportedProtocol, httpx.TooManyRedirects, httpx.InvalidURL, UnicodeError) as error:
        raise HubError(f"{access.model}: {_described(error)}: check {access.settings}") from error
    except httpx.HTTPError as error:
        raise TemporaryError(access, f"the connection broke: {_described(error)}") from error


def _described(error: Exception) -> str:
    """Returns kind, text and address of an error; some have no text."""
    import httpx  # noqa: PLC0415 - the library takes long to import

    address = f" ({address_of(error.request.url)})" if isinstance(error, httpx.RequestError) else ""
    return f"{type(error).__name__}{f': {error}' if str(error) else ''}{address}"


def address_of(url: "httpx.URL") -> str:
    """Returns an address without what may be secret: user, password and the signature of a redirect."""
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))
