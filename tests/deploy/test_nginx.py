"""nginx with the configuration of `deploy/nginx`, in front of a real service."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import ClassVar

import grpc
import httpx
import pytest

from dragoman.loadtest.reliability.replicas import Replicas, ServedProcess, behind_nginx, find_nginx
from dragoman.protos.translation_pb2 import TranslateRequest
from dragoman.protos.translation_pb2_grpc import TranslationServiceStub
from dragoman.serve.clients.channel import ClientSettings
from dragoman.serve.clients.client import TranslationClient
from dragoman.serve.host.server_process import is_ready, reserve_ports
from dragoman.serve.http.limits import HttpLimits
from dragoman.serve.settings import ServeSettings
from tests.serve.edge.test_events import read_events
from tests.support.fake_bundles import LONG_TEXT
from tests.support.live import NO_TLS, WAIT_SECONDS, GatedModel, LiveService, eventually
from tests.support.paths import ROOT

DEPLOYED = ROOT / "deploy" / "nginx"
CONFIGURATION = (DEPLOYED / "nginx.conf").read_text(encoding="utf-8")
TRANSLATE = "/v1/translate"
DOCUMENT_PATHS = ("/v1/documents", "/v2/document", "/translate_file")

pytestmark = pytest.mark.skipif(find_nginx() is None or shutil.which("curl") is None, reason="needs nginx and curl")


def in_front_of(folder: Path, *ports: tuple[int, int]) -> AbstractContextManager[Replicas]:
    """Runs nginx with its files in a folder; servers that it does not start are at the ports of three replicas."""
    processes = tuple(ServedProcess([], pair, folder / "server.log", {}) for pair in ports)
    return behind_nginx(processes, folder, DEPLOYED)


@pytest.fixture
def nginx(gated: LiveService, tmp_path: Path) -> Iterator[Replicas]:
    """A proxy in front of one service with a gated model; the service stands in for all three replicas."""
    with in_front_of(tmp_path, *[(gated.service.http_port, gated.service.grpc_port)] * 3) as nginx:
        eventually(lambda: is_ready(int(nginx.targets.rest.rpartition(":")[2])))
        yield nginx


def client(nginx: Replicas) -> httpx.Client:
    """Returns a client that waits until nginx listens."""
    transport = httpx.HTTPTransport(retries=5, trust_env=False, verify=NO_TLS)
    return httpx.Client(base_url=nginx.targets.rest, timeout=WAIT_SECONDS, transport=transport)


def test_the_server_keeps_idle_connections_longer_than_nginx() -> None:
    assert CONFIGURATION.count("keepalive_timeout 50s;") == CONFIGURATION.count("  upstream ")
    assert HttpLimits().idle_seconds > 50
    assert ServeSettings.model_fields["grpc_keepalive_seconds"].default > 50


def test_both_interfaces_translate(nginx: Replicas, gated: LiveService) -> None:
    expected = gated.post({"text": LONG_TEXT}).json()["translations"]
    with client(nginx) as rest:
        assert rest.post(TRANSLATE, json={"text": LONG_TEXT}).json()["translations"] == expected
    with grpc.insecure_channel(nginx.targets.grpc) as channel:
        answer = TranslationServiceStub(channel).Translate(TranslateRequest(text=[LONG_TEXT]), timeout=WAIT_SECONDS)
    assert answer.translations[0].text == expected[0]["text"]


def test_no_event_is_buffered_until_the_next_token(nginx: Replicas, stepwise: LiveService, model: GatedModel) -> None:
    del stepwise
    with client(nginx) as rest, rest.stream("POST", "/v1/translate/stream", json={"text": LONG_TEXT}) as answer:
        events = read_events(answer)
        _, delta = next(events)
        assert delta["target_tokens"] == len(model.steps) == 1
        model.on_step = lambda: None
        model.gate.set()
        assert len(list(events)) > 1


def test_the_id_of_a_request_is_the_same_everywhere(nginx: Replicas, tmp_path: Path) -> None:
    with client(nginx) as rest:
        given = rest.post(TRANSLATE, json={"text": LONG_TEXT}, headers={"x-request-id": "mine"})
        made = rest.post(TRANSLATE, json={"text": LONG_TEXT})
    assert given.headers["x-request-id"] == "mine"
    log = tmp_path / "requests.log"
    eventually(lambda: made.headers["x-request-id"] in log.read_text(encoding="utf-8"))  # written after the answer
    logged = [json.loads(line)["request_id"] for line in log.read_text(encoding="utf-8").splitlines()]
    assert logged[-2:] == ["mine", made.headers["x-request-id"]]


def test_deadlines_reach_the_server(nginx: Replicas, gated: LiveService, model: GatedModel) -> None:
    model.gate.clear()
    with client(nginx) as rest:
        late = rest.post(TRANSLATE, json={"text": LONG_TEXT}, headers={"x-request-timeout-ms": "100"})
    assert (late.status_code, late.json()["reason"]) == (504, "deadline_exceeded")
    with grpc.insecure_channel(nginx.targets.grpc) as channel, pytest.raises(grpc.RpcError) as raised:
        TranslationServiceStub(channel).Translate(TranslateRequest(text=[LONG_TEXT]), timeout=1.0)
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    model.gate.set()
    eventually(lambda: gated.metric("requests_total", protocol="grpc", method="translate") == 1)


def test_a_too_large_body_is_rejected_as_by_the_server(nginx: Replicas, gated: LiveService) -> None:
    body = b'{"text": "' + b"a" * ServeSettings.model_fields["max_body_bytes"].default + b'"}'
    json_type = {"content-type": "application/json"}
    expected = gated.post(path=TRANSLATE, content=body, headers=json_type)
    with client(nginx) as rest:
        answer = rest.post(TRANSLATE, content=body, headers=json_type)
    assert answer.status_code == expected.status_code == 413
    assert answer.headers["content-type"] == expected.headers["content-type"]
    assert answer.json() == {**expected.json(), "request_id": answer.headers["x-request-id"]}


@pytest.mark.parametrize("request_id", ['a","status":200,"b":"', "a\\", "a b", "a\x7f", "a" * 129])
def test_no_id_of_a_request_breaks_the_json_of_an_error_document(nginx: Replicas, request_id: str) -> None:
    headers = {"content-type": "application/json", "x-request-id": request_id}
    with client(nginx) as rest:
        answer = rest.post(TRANSLATE, content=b" " * (3 << 20), headers=headers)
    assert (answer.status_code, answer.json()["status"]) == (413, 413)
    assert answer.json()["request_id"] == answer.headers["x-request-id"] != request_id


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/metrics"), ("POST", "/v1/admin/reload"), ("POST", "/v1/keys"), ("GET", "/v1/keys/web/usage")],
)
def test_endpoints_of_operators_are_not_proxied(nginx: Replicas, method: str, path: str) -> None:
    with client(nginx) as rest:
        answer = rest.request(method, path)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html")  # of nginx itself


@pytest.mark.parametrize("path", DOCUMENT_PATHS)
def test_documents_may_be_larger_than_other_bodies(nginx: Replicas, path: str) -> None:
    fields = ServeSettings.model_fields
    most = fields["document_max_bytes"].default + fields["max_body_bytes"].default
    with client(nginx) as rest:
        largest = rest.post(path, content=b" " * most)
        larger = rest.post(path, content=b" " * (most + 1))
    assert largest.status_code in {400, 403, 404}  # of the service, which has no state directory
    assert (larger.status_code, larger.json()["detail"]) == (413, f"body: expected at most {most} bytes")


class ClosingReplica(StreamRequestHandler):
    """Reads a request and closes its connection without an answer."""

    def handle(self) -> None:
        """Counts POST requests by path."""
        method, path, _ = self.rfile.readline().decode().split()
        if method == "POST":
            self.received[path] += 1

    received: ClassVar = Counter[str]()


@pytest.mark.parametrize("path", [TRANSLATE, *DOCUMENT_PATHS, "/v1/glossaries", "/suggest"])
def test_only_requests_that_store_nothing_are_repeated(tmp_path: Path, path: str) -> None:
    ClosingReplica.received.clear()
    with ThreadingTCPServer(("127.0.0.1", 0), ClosingReplica) as replica, reserve_ports(0) as (grpc_port,):
        Thread(target=replica.serve_forever, daemon=True).start()
        try:
            with in_front_of(tmp_path, *[(replica.server_address[1], grpc_port)] * 3) as nginx, client(nginx) as rest:
                assert rest.post(path, json={"text": LONG_TEXT}).status_code == 503
        finally:
            replica.shutdown()
    assert (ClosingReplica.received[path] > 1) is (path == TRANSLATE)
    assert ClosingReplica.received[path] >= 1


def test_clients_that_watch_health_work_without_the_health_service(nginx: Replicas) -> None:
    """They would otherwise take the health of one replica for that of all."""
    settings = ClientSettings(balanced=True, retries=False, timeout_seconds=WAIT_SECONDS)
    with TranslationClient.open(nginx.targets.grpc, settings) as translator:
        assert translator.translate(LONG_TEXT).translations[0].text


def test_without_any_replica_clients_get_a_retry_delay(tmp_path: Path) -> None:
    with reserve_ports(*[0] * 6) as (a, b, c, d, e, f), in_front_of(tmp_path, (a, b), (c, d), (e, f)) as nginx:
        with client(nginx) as rest:
            answer = rest.post(TRANSLATE, json={"text": LONG_TEXT})
        with grpc.insecure_channel(nginx.targets.grpc) as channel, pytest.raises(grpc.RpcError) as raised:
            TranslationServiceStub(channel).Translate(TranslateRequest(text=[LONG_TEXT]), timeout=WAIT_SECONDS)
    assert (answer.status_code, answer.json()["reason"], answer.headers["retry-after"]) == (503, "not_ready", "1")
    assert answer.headers["content-type"] == "application/problem+json"
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
