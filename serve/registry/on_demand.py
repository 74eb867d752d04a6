"""Fetches the models of pairs that requests need and the server lacks, each once however many requests wait for it.

A model that may be fetched is offered like a served one: requests are routed to it, and languages are listed. It is
served from the moment that it is on the disk, also by processes that have not fetched it. Installed models need no
permission, because they cost no download.
"""

import asyncio
import ipaddress
import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from pathlib import Path

import structlog

from dragoman.serve.errors import FetchingError, ModelNotFoundError, NotReadyError
from dragoman.serve.host.system import run_in_daemon_thread
from dragoman.serve.observability.logs import RequestRecord
from dragoman.serve.registry.description import AvailableModel, FetchState
from dragoman.serve.registry.keeper import ModelKeeper
from dragoman.serve.settings import ServeSettings
from dragoman.serve.source import ModelSource, Progress

# After a failed fetch, the next one waits this long, so that requests do not flood the hub.
PAUSE_SECONDS = 60.0
# Between two looks at what all processes fetch.
WATCH_SECONDS = 0.5
# A client that prefers an answer at once to a wait sends this value of the field `prefer` (RFC 7240).
PREFER, AT_ONCE = "prefer", "respond-async"
# What proxies add to requests of others.
FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")

log = structlog.get_logger("dragoman")


class OnDemand:
    """Brings models that requests need. Not thread-safe: used in the event loop's thread."""

    def __init__(self, source: ModelSource, keeper: ModelKeeper, settings: ServeSettings) -> None:
        """Offers the models of a source: those that the settings name, and those whose directions no other one has."""
        self._source = source
        self._keeper = keeper
        self._right = settings.on_demand_from
        # Each returns whether the model is served now. A failed one stays until the next may begin.
        self._fetches: dict[str, asyncio.Task[bool]] = {}
        # One search on the disk at a time, however many requests come together.
        self._finding = asyncio.Lock()
        self._models = {name: AvailableModel(name, *pair) for name, pair in source.pairs.items()}
        keeper.models.offer(self._models, (settings.on_demand or "").split(","))
        self._watching = asyncio.create_task(self._watch())

    async def bring(self, names: Iterable[str], record: RequestRecord, deadline_seconds: float) -> None:
        """Waits until models are served, which are fetched at the same time; the deadline is on the monotonic clock.

        Raises:
            ModelNotFoundError: if the model must be downloaded, and the request may not cause that.
            FetchingError: if the deadline passes first, or the client does not want to wait.
            NotReadyError: if the model cannot be fetched.
        """
        fetches = {name: await self._begin(name, record) for name in names}
        if record.headers.get(PREFER) != AT_ONCE:
            await asyncio.wait(fetches.values(), timeout=max(0.0, deadline_seconds - time.monotonic()))
        for name, fetch in fetches.items():
            if not fetch.done() or fetch.cancelled():
                raise FetchingError(f"fetching {self._models[name]}")
            if not fetch.result():
                raise NotReadyError(f"{self._models[name]}: cannot be fetched: the log of the server has the reason")

    async def _begin(self, name: str, record: RequestRecord) -> asyncio.Task[bool]:
        """Returns the fetch of a model, which may run already; raises ModelNotFoundError if it may not begin."""
        async with self._finding:
            if name not in self._fetches:
                installed = await run_in_daemon_thread(partial(self._source.find, name))
                if installed is None:
                    self._check_right(name, record)
                self._bring(name, self._source.find if installed else self._source.fetch)
            return self._fetches[name]

    def _bring(self, name: str, find: Callable[[str], Path | None]) -> None:
        if name not in self._fetches:
            self._fetches[name] = asyncio.create_task(self._fetch(self._models[name], find))

    def _check_right(self, name: str, record: RequestRecord) -> None:
        if self._right == "anyone" or (self._right == "local" and is_local(record)):
            return
        if record.account is None or not record.account.key.limits.fetch:
            problem = f"{name} is not installed, and this request may not cause a download"
            raise ModelNotFoundError(f"model: {problem}: run `dragoman pull {name}` on the server")

    async def _fetch(self, model: AvailableModel, find: Callable[[str], Path | None]) -> bool:
        """Serves a model whose bundle a function finds or fetches; returns whether that succeeds."""
        model.state = FetchState.FETCHING
        try:
            bundle = await run_in_daemon_thread(partial(find, model.name))
            if bundle is None:
                raise NotReadyError("another process could not fetch it")  # noqa: TRY301 - logged as any failure
            await self._keeper.add(model.name, bundle)
        except Exception as error:  # noqa: BLE001 - otherwise every later request would wait in vain
            log.warning("fetch_failed", model=model.name, problem=str(error))
            model.state = FetchState.FAILED
            asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._fetches.pop, model.name)
            return False
        log.info("fetched", model=model.name)
        model.state = FetchState.AVAILABLE
        del self._fetches[model.name]
        return True

    async def _watch(self) -> None:
        """Shows what all processes fetch, and serves what another one has fetched."""
        shown: Mapping[str, Progress] = {}
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                before, shown = shown, await run_in_daemon_thread(self._source.progress)
                self._follow(shown, before.keys() - shown.keys())
            except Exception:  # if the watch ended, the progress would never change
                log.exception("fetch_watch_failed")

    def _follow(self, shown: Mapping[str, Progress], ended: AbstractSet[str]) -> None:
        """Shows the progress of fetches, and serves what others have installed, or shows that they have failed."""
        for name in shown.keys() & self._models.keys():
            model = self._models[name]
            model.done_bytes, model.total_bytes = shown[name]
            if name not in self._fetches and name not in self._keeper.models.names:
                model.state = FetchState.FETCHING
        offered = self._models.keys() & self._keeper.models.offers.keys()
        for name in (offered & ended).difference(self._keeper.models.names):
            self._bring(name, self._source.find)

    async def stop(self) -> None:
        """Ends what runs; the next start continues a download."""
        self._source.stop()
        tasks = (self._watching, *self._fetches.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def is_local(record: RequestRecord) -> bool:
    """Returns whether a request comes from this machine itself: through no proxy, and from no page of another site."""
    headers = record.headers
    # The names by which a page may have found this machine.
    hosts = [headers[name].rpartition("://")[2] for name in ("host", "origin") if name in headers]
    # The network of an IPv6 address begins with another address.
    address = "::1" if record.network == "::/64" else record.network
    return not any(name in headers for name in FORWARDED) and all(map(_is_loopback, (address, *hosts)))


def _is_loopback(host: str) -> bool:
    """Returns whether an address, or a host with a port, is this machine."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host if "::" in host else host.partition(":")[0]
    with suppress(ValueError):
        return ipaddress.ip_address(name).is_loopback
    return name == "localhost"
