"""What gRPC clients may leave waiting, by raw HTTP/2: over plain connections and TLS."""

import asyncio
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dragoman.protos.translation_pb2 import TranslateRequest, TranslateResponse
from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.grpc.call import SEND_TIMEOUT_SECONDS, Context
from dragoman.serve.grpc.guard import MESSAGE_SECONDS
from dragoman.serve.grpc.reflection import IDLE_SECONDS
from dragoman.serve.grpc.waits import Waits
from tests.support.attacks import http2
from tests.support.attacks.link import EndedError, Link, Target
from tests.support.certificates import Authority
from tests.support.live import (
    STREAM_METHOD,
    TRANSLATE_METHOD,
    WAIT_SECONDS,
    LeapingLoop,
    LiveService,
    eventually,
    run_service,
)
from tests.support.processes import read_log, start_process

MANY_METHOD = http2.TRANSLATE_MANY
INFER_METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
CHECK_METHOD = "/grpc.health.v1.Health/Check"
MESSAGE = TranslateRequest(text=["alpha beta."])
REQUEST = http2.prefixed(MESSAGE.SerializeToString())
DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, INVALID = "grpc-status 4", "grpc-status 8", "grpc-status 3"
UNAVAILABLE, UNAUTHENTICATED = "grpc-status 14", "grpc-status 16"
NEVER_SECONDS = 600.0


@dataclass(frozen=True)
class Transport:
    """How clients connect: settings of the server, and what clients need for them."""

    settings: dict[str, Any]
    context: ssl.SSLContext | None = None
    credentials: grpc.ChannelCredentials | None = None

    def channel(self, port: int) -> grpc.Channel:
        """Opens a well-behaved client."""
        target, options = f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)]
        if self.credentials is None:
            return grpc.insecure_channel(target, options)
        return grpc.secure_channel(target, self.credentials, options)


@pytest.fixture(name="transport", params=["plain", "tls"])
def _transport(request: pytest.FixtureRequest, tmp_path: Path) -> Transport:
    if request.param == "plain":
        return Transport({})
    authority = Authority(tmp_path)
    context = authority.context()
    context.set_alpn_protocols(["h2"])
    return Transport(authority.settings(), context, authority.credentials())


@dataclass(frozen=True)
class Server:
    """A service with limits of a test, and clients."""

    live: LiveService
    transport: Transport

    def translate(self, *metadata: tuple[str, str]) -> str:
        """Returns a translation for a well-behaved client with a new connection, or the name of the status."""
        with self.transport.channel(self.live.service.grpc_port) as channel:
            method: Any = channel.unary_unary(
                TRANSLATE_METHOD, TranslateRequest.SerializeToString, TranslateResponse.FromString
            )
            try:
                response = method(MESSAGE, timeout=WAIT_SECONDS, metadata=metadata)
            except grpc.RpcError as error:
                return str(error.code().name)
            return str(response.translations[0].text)

    def run(self, attack: "Callable[[Link, Counter[str]], Coroutine[Any, Any, None]]", **settings: int) -> Counter[str]:
        """Runs a client with these settings of HTTP/2 on one connection; returns the answers."""

        async def run() -> Counter[str]:
            counts = Counter[str]()
            target = Target(self.live.service.grpc_port, self.transport.context)
            link = await Link.open(target, http2.Http2Answers(counts))
            with closing(link):
                await http2.begin(link, **settings)
                await attack(link, counts)
            return counts

        return asyncio.run(run())

    async def serves_others(self) -> bool:
        answer = await asyncio.to_thread(self.translate)
        return answer not in ("RESOURCE_EXHAUSTED", "UNAVAILABLE")


Serve = Callable[..., Server]


@pytest.fixture
def serve(bundle_path: Path, transport: Transport, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Runs a service until the test ends, with values of names in `dragoman.serve.grpc`, and with settings."""
    with ExitStack() as stack:

        def start(values: dict[str, Any] | None = None, **settings: Any) -> Server:
            for name, value in (values or {}).items():
                monkeypatch.setattr(f"dragoman.serve.grpc.{name}", value)
            live = stack.enter_context(run_service(bundle_path, leaping=True, **transport.settings, **settings))
            return Server(live, transport)

        yield start


async def expect(counts: Counter[str], answer: str, count: int = 1) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while counts[answer] < count:  # noqa: ASYNC110 - the counter has no event
            await asyncio.sleep(0.005)


async def expect_late(server: Server, counts: Counter[str], answer: str, seconds: float) -> None:
    """Advances the clock of the server beyond the limit of its waits for a client until the answer arrives."""
    await asyncio.to_thread(
        server.live.leap_until, lambda: counts[answer] > 0, seconds + 1, lambda: waits_for_a_client(server)
    )


def waits_for_a_client(server: Server) -> bool:
    """Returns whether the event loop has a timer of waits, and one of them goes on."""
    assert isinstance(server.live.loop, LeapingLoop)
    owners = [getattr(callback, "__self__", None) for callback in server.live.loop.timers()]
    return any(isinstance(owner, Waits) and owner._ends for owner in owners)


@pytest.mark.parametrize("attack", [http2.streams_reset, http2.streams_left])
@pytest.mark.parametrize("options", [[], ["--api-keys", "first"]], ids=["open", "keys"])
def test_many_calls_cost_little_memory(
    bundle_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    attack: Callable[[Link], Coroutine[Any, Any, None]],
    options: list[str],
    *,
    thorough: bool,
) -> None:
    """Reset at once, or left open: without a limit of streams, 40,000 took 500 to 750 MiB, which the process kept."""
    monkeypatch.setattr(http2, "STREAMS", 20_000 if thorough else 5_000)
    monkeypatch.setattr(http2, "HELD_SECONDS", 1.0)

    async def attack_twice(port: int) -> None:
        links = [await Link.open(Target(port), http2.Http2Answers(Counter())) for _ in range(2)]
        await asyncio.gather(*map(attack, links), return_exceptions=True)
        for link in links:
            link.close()

    with start_process(bundle_path, "open", *options) as process:
        while (ready := read_log(process))["event"] != "ready":
            pass
        threading.Thread(target=process.communicate, daemon=True).start()  # a full pipe would block the server
        statm = Path(f"/proc/{process.pid}/statm")
        before_pages = int(statm.read_text().split()[1])
        asyncio.run(attack_twice(ready["grpc_port"]))
        assert (int(statm.read_text().split()[1]) - before_pages) * 4096 < 30 << 20
        with Transport({}).channel(ready["grpc_port"]) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            assert stub.Check(health_pb2.HealthCheckRequest(), timeout=WAIT_SECONDS).status


def test_connections_are_bounded(serve: Serve, transport: Transport) -> None:
    server = serve({"options.MAX_CONNECTIONS": 2, "api.max_idle_connections": lambda: 2})
    with ExitStack() as stack:
        for _ in range(2):
            channel = stack.enter_context(transport.channel(server.live.service.grpc_port))
            grpc.channel_ready_future(channel).result(WAIT_SECONDS)
        assert server.translate() == "UNAVAILABLE"
    eventually(lambda: server.translate() != "UNAVAILABLE")


@pytest.mark.parametrize("path", [None, http2.WATCH])
def test_a_client_with_many_idle_connections_loses_its_own(
    serve: Serve, transport: Transport, path: str | None
) -> None:
    """Also with open watches. New clients get in, from its address and from others, which lose nothing."""
    server = serve({"api.max_idle_connections": lambda: 8, "connections.PAUSE_SECONDS": 0.01})

    async def attack() -> None:
        target, counts = Target(server.live.service.grpc_port, transport.context), Counter[str]()
        with ExitStack() as stack:
            links = []
            for _ in range(24):
                links.append(stack.enter_context(closing(await Link.open(target, http2.Http2Answers(Counter())))))
                await http2.begin(links[-1])
                if path is not None:
                    await links[-1].send(http2.headers(1, path) + http2.data(1, http2.prefixed(b""), end=True))
            async with asyncio.timeout(WAIT_SECONDS):
                while sum(link.ended for link in links) < 24 - 8:  # noqa: ASYNC110 - another client ends them
                    await asyncio.sleep(0.005)
            assert await server.serves_others()
            new = stack.enter_context(closing(await Link.open(target, http2.Http2Answers(counts))))
            await http2.begin(new)
            await new.send(http2.headers(1, CHECK_METHOD) + http2.data(1, http2.prefixed(b""), end=True))
            await expect(counts, "grpc-status 0")

    with transport.channel(server.live.service.grpc_port) as honest:
        grpc.channel_ready_future(honest).result(WAIT_SECONDS)
        states: list[grpc.ChannelConnectivity] = []
        honest.subscribe(states.append)
        asyncio.run(attack())
        assert grpc.ChannelConnectivity.IDLE not in states


@pytest.mark.anyio
async def test_a_connection_without_settings_is_closed(serve: Serve) -> None:
    """Or without a TLS handshake; gRPC would wait for two minutes."""
    server = serve({"options.HANDSHAKE_SECONDS": 0.2})
    link = await Link.open(Target(server.live.service.grpc_port), http2.Http2Answers(Counter()))
    with closing(link), pytest.raises(EndedError):
        async with asyncio.timeout(WAIT_SECONDS):
            await link.hold()


@pytest.mark.parametrize("method", [TRANSLATE_METHOD, STREAM_METHOD, CHECK_METHOD, http2.WATCH])
def test_a_call_without_a_message_ends(serve: Serve, method: str) -> None:
    """Its client sent no deadline."""
    server = serve()

    async def attack(link: Link, counts: Counter[str]) -> None:
        await link.send(http2.headers(1, method) + http2.data(1, REQUEST[:-1]))
        await expect_late(server, counts, DEADLINE_EXCEEDED, MESSAGE_SECONDS)
        await link.send(http2.headers(3, method, end=True))
        await expect(counts, INVALID)

    server.run(attack)


def test_calls_without_messages_keep_nobody_out(serve: Serve) -> None:
    """The longest wait ends for a new call."""
    server = serve({"guard.MESSAGE_SECONDS": NEVER_SECONDS, "guard.WAITING_CALLS": 20})

    async def attack(link: Link, counts: Counter[str]) -> None:
        await link.send(b"".join(http2.headers(1 + 2 * number) for number in range(80)))
        await expect(counts, RESOURCE_EXHAUSTED, 60)
        assert await server.serves_others()
        await expect(counts, RESOURCE_EXHAUSTED, 61)

    assert server.run(attack)[RESOURCE_EXHAUSTED] == 61


def test_refusals_beyond_a_rate_are_late_and_delay_nobody_else(serve: Serve) -> None:
    rate = {"pace.REFUSALS_AT_ONCE": 4, "pace.REFUSALS_PER_SECOND": 1 / NEVER_SECONDS}
    server = serve({**rate, "pace.MAX_SECONDS": NEVER_SECONDS})

    async def attack(link: Link, counts: Counter[str]) -> None:
        for number in range(1, 2 * 10, 2):
            await link.send(http2.headers(number) + http2.data(number, http2.prefixed(b""), end=True))
        await expect(counts, INVALID, 4)
        assert await server.serves_others()
        assert counts[INVALID] == 4
        # After that, no call waits for its message, which has a shorter time.
        refused = {"protocol": "grpc", "outcome": InvalidRequestError.reason}
        await asyncio.to_thread(eventually, lambda: server.live.metric("requests_total", **refused) == 10)
        server.live.leap(NEVER_SECONDS + 1)
        await expect(counts, INVALID, 10)

    server.run(attack)


def test_the_memory_of_unread_responses_is_bounded(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that reads is served meanwhile."""
    server = serve()

    async def attack(link: Link, counts: Counter[str]) -> None:
        await link.send(http2.headers(1) + http2.data(1, REQUEST, end=True))
        await asyncio.to_thread(eventually, lambda: server.live.metric("requests_total", outcome="ok") == 1)
        monkeypatch.setattr("dragoman.serve.grpc.unread.UNREAD_BYTES", 1)
        await link.send(http2.headers(3) + http2.data(3, REQUEST, end=True))
        await expect(counts, RESOURCE_EXHAUSTED)
        assert await server.serves_others()

    server.run(attack, INITIAL_WINDOW_SIZE=0)
    eventually(lambda: not server.live.service._grpc._guard._unread.size_bytes)


def test_further_connections_give_a_caller_no_further_unread_responses(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve({"unread.SMALL_BYTES": 0})

    async def attack(link: Link, counts: Counter[str]) -> None:
        await link.send(http2.headers(1) + http2.data(1, REQUEST, end=True))
        await asyncio.to_thread(eventually, lambda: server.live.service._grpc._guard._unread.size_bytes > 0)
        monkeypatch.setattr("dragoman.serve.grpc.unread.UNREAD_BYTES", 1)
        assert await asyncio.to_thread(server.translate) == "RESOURCE_EXHAUSTED"
        assert counts[RESOURCE_EXHAUSTED] == 0

    server.run(attack, INITIAL_WINDOW_SIZE=0)
    eventually(lambda: not server.live.service._grpc._guard._unread.size_bytes)


@pytest.mark.anyio
async def test_a_flood_without_calls_is_ignored(serve: Serve, transport: Transport) -> None:
    """The kernel drops the packets, so that the client waits in vain; the server closes the connection later."""
    server = serve({"connections.SPARE_BYTES": 1 << 20, "connections.PAUSE_SECONDS": 0.01})
    target = Target(server.live.service.grpc_port, transport.context)
    with closing(await Link.open(target, http2.Http2Answers(Counter()))) as link:
        flooding = asyncio.create_task(http2.continuations(link))
        await asyncio.to_thread(eventually, lambda: server.live.metric("grpc_connections_ignored_total") == 1)
        assert await server.serves_others()
        assert not flooding.done()
        flooding.cancel()


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_client_with_large_messages_is_not_ignored(
    bundle_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """Its messages are refused, and thus cheap."""
    monkeypatch.setattr("dragoman.serve.grpc.connections.SPARE_BYTES", 4 << 20)
    monkeypatch.setattr("dragoman.serve.grpc.connections.PAUSE_SECONDS", 0.01)
    large = TranslateRequest(text=["a" * (1 << 20)]).SerializeToString()
    with (
        run_service(bundle_path, host="::") as live,
        grpc.insecure_channel(f"{host}:{live.service.grpc_port}") as channel,
    ):
        method: Any = channel.unary_unary(TRANSLATE_METHOD)
        for _ in range(20):
            with pytest.raises(grpc.RpcError, match="characters, expected at most"):
                method(large, timeout=WAIT_SECONDS)
        connections = live.service._grpc._connections
        eventually(lambda: len(connections._by_socket) == 1)
        assert {value.peer for value in connections._by_socket.values()} == set(connections._by_peer)
        assert live.metric("grpc_connections_ignored_total") == 0


def test_unread_streams_keep_nobody_out(serve: Serve) -> None:
    """While clients do not read, their calls are not in flight."""
    live = (server := serve()).live

    async def attack(link: Link, _: Counter[str]) -> None:
        for stream_id in range(1, 2 * 4, 2):
            await link.send(http2.headers(stream_id, STREAM_METHOD) + http2.data(stream_id, REQUEST, end=True))
        await asyncio.to_thread(
            eventually, lambda: live.metric("inflight_requests") == 4 and not live.service.core.load_shedder._inside
        )

    server.run(attack, INITIAL_WINDOW_SIZE=0)


def test_an_unread_watch_delays_neither_others_nor_the_shutdown(serve: Serve, transport: Transport) -> None:
    """The library holds a lock while it writes: health, keys and certificates did not change any more."""
    server = serve()

    async def attack(link: Link, _: Counter[str]) -> None:
        await link.send(http2.headers(1, http2.WATCH) + http2.data(1, http2.prefixed(b""), end=True))
        with transport.channel(server.live.service.grpc_port) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=WAIT_SECONDS)
            assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
            server.live.stop()
            assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        server.live.join()

    server.run(attack, INITIAL_WINDOW_SIZE=0)


def test_watches_are_bounded(serve: Serve) -> None:
    async def attack(link: Link, counts: Counter[str]) -> None:
        for stream_id in range(1, 2 * 5, 2):
            await link.send(http2.headers(stream_id, http2.WATCH) + http2.data(stream_id, http2.prefixed(b"")))
        await expect(counts, RESOURCE_EXHAUSTED, 2)

    assert serve({"health.WATCHES": 3}).run(attack)[RESOURCE_EXHAUSTED] == 2


@pytest.mark.parametrize(("method", "status"), [(MANY_METHOD, UNAVAILABLE), (INFER_METHOD, DEADLINE_EXCEEDED)])
def test_an_idle_stream_of_requests_ends(serve: Serve, method: str, status: str) -> None:
    """Long before its maximum duration."""
    idle_seconds = 5.0
    server = serve({"waits.IDLE_STREAM_SECONDS": idle_seconds})

    async def attack(link: Link, counts: Counter[str]) -> None:
        await link.send(http2.headers(1, method))
        await expect_late(server, counts, status, idle_seconds)

    server.run(attack)


@pytest.mark.parametrize(("method", "status"), [(MANY_METHOD, UNAVAILABLE), (INFER_METHOD, RESOURCE_EXHAUSTED)])
def test_idle_streams_of_requests_are_bounded(serve: Serve, method: str, status: str) -> None:
    async def attack(link: Link, counts: Counter[str]) -> None:
        await link.send(b"".join(http2.headers(1 + 2 * number, method) for number in range(5)))
        await expect(counts, status, 2)

    assert serve({"waits.IDLE_STREAMS": 3}).run(attack)[status] == 2


def test_a_stream_of_reflection_is_bounded(serve: Serve) -> None:
    async def attack(link: Link, counts: Counter[str]) -> None:
        await link.send(http2.headers(1, http2.REFLECTION) + http2.data(1, http2.prefixed(http2.LIST_SERVICES) * 4))
        await expect(counts, RESOURCE_EXHAUSTED)

    serve({"reflection.STREAM_MESSAGES": 3}).run(attack)


def test_an_idle_stream_of_reflection_ends(serve: Serve) -> None:
    """After a slow write, which has a limit of its own."""
    writing, looks = threading.Event(), list[bool]()

    async def send_slowly(context: Context, message: object) -> None:
        async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
            await context.write(message)
            writing.set()
            while len(looks) < 3:  # noqa: ASYNC110 - the test looks in another thread
                await asyncio.sleep(0)

    server = serve({"reflection.send": send_slowly})

    def waits() -> bool:
        looks.append(waits_for_a_client(server))
        return looks[-1]

    async def attack(link: Link, counts: Counter[str]) -> None:
        await link.send(http2.headers(1, http2.REFLECTION) + http2.data(1, http2.prefixed(http2.LIST_SERVICES)))
        assert await asyncio.to_thread(writing.wait, WAIT_SECONDS)
        leap_until, is_late = server.live.leap_until, lambda: counts[DEADLINE_EXCEEDED] > 0
        await asyncio.to_thread(leap_until, is_late, IDLE_SECONDS + 1, waits)

    server.run(attack)
    assert looks[:2] == [False, False]


def test_several_authorization_headers_are_rejected(serve: Serve) -> None:
    """Otherwise a proxy might check another one than the server."""
    right, wrong = ("authorization", "Bearer first"), ("authorization", "Bearer second")
    server = serve(api_keys="first")
    assert server.translate(right) not in ("UNAUTHENTICATED", "UNAVAILABLE")
    for several in ((right, right), (right, wrong), (wrong, right)):
        assert server.translate(*several) == "UNAUTHENTICATED"


def test_a_call_without_a_key_ends_before_its_message(serve: Serve) -> None:
    async def attack(link: Link, counts: Counter[str]) -> None:
        for number, method in enumerate((TRANSLATE_METHOD, STREAM_METHOD, MANY_METHOD, http2.REFLECTION)):
            await link.send(http2.headers(1 + 2 * number, method))
        await expect(counts, UNAUTHENTICATED, 4)

    serve(api_keys="first").run(attack)
