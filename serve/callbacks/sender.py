"""Sends the call backs of ended jobs, each until its receiver acknowledges it or the last attempt fails.

A process that dies during a call leaves it to another one, so that a receiver may get it twice.
"""

import asyncio
import json
import random
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from http.client import BadStatusLine

import structlog

from dragoman.serve.callbacks.hosts import PORTS, CallbackHosts, CallbackUrl
from dragoman.serve.callbacks.public_address import resolve_public
from dragoman.serve.callbacks.signature import signed_headers
from dragoman.serve.documents.job_store import DueCallback, JobStore
from dragoman.serve.errors import ServiceError
from dragoman.serve.host.threads import DOCUMENTS

# A call lasts from the search of the address to the status of the answer, and less long than a claim.
CALL_SECONDS = 10.0
# A longer first line of an answer is a failure. Of the rest, the reader holds at most one read of the socket, 256 KiB.
MAX_STATUS_LINE_BYTES = 1024
# Waits after failed attempts, each up to a fifth longer or shorter. After the last one, the call back is abandoned.
RETRY_SECONDS = (5.0, 60.0, 600.0, 3600.0, 10_800.0, 21_600.0)
# After this many calls in a row without an answer, or with one of 5xx, a host gets none for a while.
PAUSE_FAILURES = 5
PAUSE_SECONDS = 600.0
MAX_CALLS = 4
# Another process may have ended a job.
POLL_SECONDS = 2.0
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})\b")
_SUCCESS, _SERVER_ERROR = range(200, 300), 500

_log = structlog.get_logger("dragoman")


class CallbackSender:
    """Claims call backs and sends them, one at a time to each host."""

    def __init__(
        self,
        store: JobStore,
        hosts: CallbackHosts,
        secrets: Sequence[bytes],
        count: Callable[[str], object],
        resolve: Callable[[str, int], Awaitable[str]] = resolve_public,
    ) -> None:
        """Creates the sender; `count` is called with the result of each attempt, `resolve` as `resolve_public`."""
        self._store, self._hosts, self._secrets = store, hosts, secrets
        self._count, self._resolve = count, resolve
        self._tls = ssl.create_default_context()
        self._claiming = asyncio.Lock()
        self._called = set[str]()  # hosts
        self._failures = dict[str, tuple[int, float]]()  # by host: how many in a row, and the time of the last one

    async def run(self) -> None:
        """Sends call backs until it is canceled; those that it sends then are sent again."""
        await asyncio.gather(*(self._work() for _ in range(MAX_CALLS)))

    async def _work(self) -> None:
        while True:
            try:
                await self._send(await self._claim())
            except Exception as error:  # noqa: BLE001 - the database may answer the next time
                _log.warning("callback_failed", problem=type(error).__name__)
                await asyncio.sleep(POLL_SECONDS)

    async def _claim(self) -> DueCallback:
        """Returns a call back as soon as one is due."""
        async with self._claiming:
            while True:
                since = time.monotonic() - PAUSE_SECONDS
                self._failures = {host: failures for host, failures in self._failures.items() if failures[1] > since}
                paused = {host for host, (count, _) in self._failures.items() if count >= PAUSE_FAILURES}
                callback = await DOCUMENTS.run(self._store.claim_callback, self._called | paused)
                if callback is not None:
                    self._called.add(callback.host)
                    return callback
                await asyncio.sleep(POLL_SECONDS)

    async def _send(self, callback: DueCallback) -> None:
        result, reason = await self._attempt(callback)
        retry_seconds = None
        if result == "failed" and callback.attempt > len(RETRY_SECONDS):
            result = "abandoned"
        elif result == "failed":
            retry_seconds = RETRY_SECONDS[callback.attempt - 1] * random.uniform(0.8, 1.2)
        # What was acknowledged must not be sent again, even if the process stops now.
        await asyncio.shield(DOCUMENTS.run(self._store.settle_callback, callback, retry_seconds))
        self._count(result)
        _log.info("callback", result=result, reason=reason, host=callback.host, attempt=callback.attempt)

    async def _attempt(self, callback: DueCallback) -> tuple[str, str]:
        """Returns the result of a call and its reason, the status of the answer or the name of an error."""
        try:
            url = self._hosts.check(callback.url)
            async with asyncio.timeout(CALL_SECONDS):
                status = await self._post(url, callback)
            reason = f"status {status}"
        except ServiceError as error:
            return "refused", type(error).__name__
        except Exception as error:  # noqa: BLE001 - no call is repeated without end
            status, reason = _SERVER_ERROR, type(error).__name__
        finally:
            self._called.discard(callback.host)
        before, _ = self._failures.pop(callback.host, (0, 0.0))
        if status >= _SERVER_ERROR:
            self._failures[callback.host] = before + 1, time.monotonic()
        return ("delivered" if status in _SUCCESS else "failed"), reason

    async def _post(self, url: CallbackUrl, callback: DueCallback) -> int:
        """Calls the address that was checked, and returns the status of the answer; BadStatusLine: it has none."""
        address = await self._resolve(url.host, url.port)
        tls, name = (self._tls, url.host) if url.scheme == "https" else (None, None)
        connecting = asyncio.open_connection(
            address, url.port, ssl=tls, server_hostname=name, limit=MAX_STATUS_LINE_BYTES
        )
        reader, writer = await connecting
        try:
            writer.write(self._request(url, callback))
            status = _STATUS.match(await reader.readuntil(b"\n"))
            if status is None:
                raise BadStatusLine("")
            return int(status[1])
        finally:
            writer.transport.abort()

    def _request(self, url: CallbackUrl, callback: DueCallback) -> bytes:
        now_seconds = int(time.time())
        body = json.dumps({"id": callback.id, "status": callback.status, "time_seconds": now_seconds}).encode()
        fields = {"host": f"{url.host}:{url.port}".removesuffix(f":{PORTS[url.scheme]}"), "user-agent": "dragoman"}
        fields |= {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
        fields |= signed_headers(self._secrets, callback.id, now_seconds, body)
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"POST {url.target} HTTP/1.1\r\n{head}\r\n".encode() + body
