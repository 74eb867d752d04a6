"""What no gRPC call may do to the server, whatever bytes its path, metadata and message have."""

import asyncio
import logging
import os
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dragoman.protos.translation_pb2 import TranslateRequest
from dragoman.serve.grpc.server import GrpcServer
from dragoman.serve.http.server import ListenError
from dragoman.serve.registry.lifecycle import Stage
from tests.support.attacks import http2
from tests.support.attacks.damaged import END_HEADERS, frame, literal
from tests.support.attacks.link import Link, Target
from tests.support.live import WAIT_SECONDS, LiveService, eventually, run_service

OK, INVALID, UNIMPLEMENTED, INTERNAL = "grpc-status 0", "grpc-status 3", "grpc-status 12", "grpc-status 13"
TRANSLATE = http2.TRANSLATE.encode()
CHECK = "/grpc.health.v1.Health/Check"
MESSAGE = TranslateRequest(text=["alpha beta."]).SerializeToString()
NO_MESSAGE = b"\xff\xff\xff\xff"
# The code of HTTP/2, and the streams of the calls.
CANCEL, CANCELED = b"\0\0\0\x08", range(1, 100, 2)


def call(stream_id: int, path: bytes, *more: tuple[bytes, bytes], message: bytes = MESSAGE) -> bytes:
    """Returns the frames of a call with any bytes as path and further fields."""
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"attacker")]
    fields += [(b"content-type", b"application/grpc"), (b"te", b"trailers"), *more]
    header = frame(1, END_HEADERS, stream_id, b"".join(literal(*field) for field in fields))
    return header + http2.data(stream_id, http2.prefixed(message), end=True)


def _statuses(counts: Counter[str]) -> int:
    return sum(count for name, count in counts.items() if name.startswith("grpc-status"))


def answers(live: LiveService, calls: Sequence[bytes]) -> Counter[str]:
    """Returns what each of the calls got, over one connection."""

    async def send() -> Counter[str]:
        counts = Counter[str]()
        link = await Link.open(Target(live.service.grpc_port), http2.Http2Answers(counts))
        with closing(link):
            await http2.begin(link)
            await link.send(b"".join(calls))
            async with asyncio.timeout(WAIT_SECONDS):
                while _statuses(counts) < len(calls):  # noqa: ASYNC110 - the counter has no event
                    await asyncio.sleep(0.005)
        return counts

    return asyncio.run(send())


@settings(database=None, max_examples=40, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(st.binary(min_size=1, max_size=50).map(lambda path: b"/" + path), min_size=1, max_size=8))
@example([TRANSLATE + b"\xa1", b"/\xff\xfe", b"/\0", b"/", b"x", b"/a/b/c", b"/" + b"a" * 4000])
def test_paths_of_any_bytes_are_unknown_methods(finite_live: LiveService, paths: list[bytes]) -> None:
    calls = [call(1 + 2 * number, path) for number, path in enumerate(paths)]
    assert answers(finite_live, calls)[UNIMPLEMENTED] == len(paths)
    assert finite_live.get("/readyz").status_code == httpx.codes.OK
    assert finite_live.health() == "SERVING"


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        (b"x-name", b"caf\xe9", OK),
        (b"x-request-id", b"\xff", OK),
        (b"caf\xe9", b"1", INTERNAL),
        (b"\xff", b"", INTERNAL),
    ],
)
def test_metadata_that_is_not_utf8_gets_a_status_and_logs_nothing(
    finite_live: LiveService, caplog: pytest.LogCaptureFixture, name: bytes, value: bytes, status: str
) -> None:
    """The core of gRPC rejects names; values are read as Latin-1."""
    assert answers(finite_live, [call(1, TRANSLATE, (name, value))])[status] == 1
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_calls_that_are_canceled_before_they_start_end(finite_live: LiveService) -> None:
    """Their task never runs."""

    async def send() -> None:
        link = await Link.open(Target(finite_live.service.grpc_port), http2.Http2Answers(Counter()))
        with closing(link):
            await http2.begin(link)
            await link.send(b"".join(call(number, TRANSLATE) + frame(3, 0, number, CANCEL) for number in CANCELED))
            await asyncio.sleep(0.1)
            await asyncio.to_thread(eventually, lambda: not finite_live.service._grpc._server._calls)

    asyncio.run(send())
    assert finite_live.health() == "SERVING"


@pytest.mark.parametrize("path", [CHECK, http2.WATCH, http2.REFLECTION])
@pytest.mark.parametrize("message", [NO_MESSAGE, b"\x0a\x01\xff"])
def test_a_request_of_health_or_reflection_that_is_no_message_is_invalid(
    finite_live: LiveService, caplog: pytest.LogCaptureFixture, path: str, message: bytes
) -> None:
    assert answers(finite_live, [call(1, path.encode(), message=message)])[INVALID] == 1
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def stop_listening(live: LiveService, interface: str) -> None:
    """Ends the listening socket of an interface, behind the back of its server."""
    if interface == "REST":
        live.service._http.listener._socket.shutdown(socket.SHUT_RD)
        return
    for descriptor in range(1000):
        try:
            with socket.socket(fileno=os.dup(descriptor)) as found:
                listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if listens and found.getsockname()[1] == live.service.grpc_port:
                    found.shutdown(socket.SHUT_RD)
        except OSError:
            continue


@pytest.mark.parametrize("interface", ["gRPC", "REST"])
def test_a_service_that_has_lost_an_interface_is_not_ready_and_ends(bundle_path: Path, interface: str) -> None:
    def lose(live: LiveService) -> None:
        with live.http() as client:
            assert client.get("/readyz").status_code == httpx.codes.OK
            stop_listening(live, interface)
            eventually(lambda: client.get("/readyz").status_code == httpx.codes.SERVICE_UNAVAILABLE)
        lifecycle = live.service.lifecycle
        live.leap_until(lambda: lifecycle.stage is Stage.DRAINING, 600, lambda: lifecycle.stage is Stage.LAME_DUCK)

    with (
        pytest.raises(ListenError, match=f"{interface} no longer listens"),
        run_service(bundle_path, leaping=True, lame_duck_seconds=600) as live,
    ):
        lose(live)


def test_a_server_that_accepts_no_more_calls_ends_the_service(
    bundle_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no call")

    monkeypatch.setattr(GrpcServer, "_request_call", fail)
    with pytest.raises(ListenError, match="gRPC no longer listens"), run_service(bundle_path) as live:
        live.join()
