"""Traces for a collector that cannot be reached, and hostile headers of traces, change no answer, also with TLS."""

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import grpc
import httpx
import pytest

from dragoman.protos.translation_pb2 import TranslateRequest, TranslateResponse
from dragoman.serve.host.server_process import HOST, reserve_ports
from tests.support.certificates import Authority
from tests.support.live import WAIT_SECONDS, eventually
from tests.support.processes import start_process

Collector = Callable[[], AbstractContextManager[int]]

REQUESTS = 50
TRACE = "0af7651916cd43dd8448eb211c80319c"
HOSTILE = (
    {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"},
    {"traceparent": "00-" + "0" * 32 + "-" + "0" * 16 + "-01"},
    {"traceparent": "ff-" + "x" * 5000},
    {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "tracestate": ",".join(f"k{n}=v" for n in range(500))},
    {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "tracestate": "=,=, ,a=" + "b" * 5000},
    {"baggage": ",".join(f"k{n}=v" for n in range(1000))},
    {"traceparent": "", "tracestate": "", "baggage": "%zz=;;;"},
)


@contextmanager
def refusing() -> Iterator[int]:
    """Yields a port where no process listens."""
    with reserve_ports(0) as (port,):
        yield port


@contextmanager
def silent() -> Iterator[int]:
    """Yields a port where connections are accepted but never answered."""
    with socket.create_server((HOST, 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize("collector", [refusing, silent])
def test_a_collector_out_of_reach_changes_no_answer(bundle_path: Path, tmp_path: Path, collector: Collector) -> None:
    authority = Authority(tmp_path)
    with collector() as port, reserve_ports(0, 0) as ports:
        options = {**authority.settings(), "http_port": ports[0], "grpc_port": ports[1]}
        options |= {"trace_endpoint": f"http://{HOST}:{port}", "trace_sample_ratio": 1}
        given = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]
        with (
            (tmp_path / "log").open("w") as log,
            start_process(bundle_path, "open", *given, stderr=log.fileno()) as process,
        ):
            serve_both(ports, authority)
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_SECONDS) == 0
    lines = (tmp_path / "log").read_text().splitlines()
    assert not any("Traceback" in line for line in lines)
    assert len(lines) < 2 * REQUESTS + 100, "the exporter repeats itself"


def serve_both(ports: tuple[int, ...], authority: Authority) -> None:
    """Sends requests over both interfaces, each with headers of a trace."""
    url, body = f"https://{HOST}:{ports[0]}", {"text": "alpha."}
    with (
        httpx.Client(base_url=url, verify=authority.context(), timeout=WAIT_SECONDS, trust_env=False) as client,
        grpc.secure_channel(f"{HOST}:{ports[1]}", authority.credentials()) as channel,
    ):

        def is_ready() -> bool:
            try:
                return client.get("/readyz").status_code == httpx.codes.OK
            except httpx.TransportError:
                return False

        eventually(is_ready)
        call = channel.unary_unary(
            "/dragoman.v1.TranslationService/Translate",
            TranslateRequest.SerializeToString,
            TranslateResponse.FromString,
        )
        expected = client.post("/v1/translate", json=body).json()["translations"]
        for number in range(REQUESTS):
            headers = HOSTILE[number % len(HOSTILE)]
            assert client.post("/v1/translate", json=body, headers=headers).json()["translations"] == expected
            answer = call(TranslateRequest(text=["alpha."]), metadata=tuple(headers.items()), timeout=WAIT_SECONDS)
            assert answer.translations[0].text == expected[0]["text"]
