"""Dragoman on Ray Serve behaves as `dragoman serve`: a real cluster on this machine, started with `serve run`."""

import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import grpc
import pytest
import yaml

from dragoman.protos.translation_pb2 import TranslateRequest, TranslateResponse, TranslateStreamResponse
from dragoman.serve.bundle.bundle import Bundle, file_hashes, write_golden, write_manifest
from dragoman.serve.host.server_process import reserve_ports
from tests.support.live import STREAM_METHOD, TRANSLATE_METHOD
from tests.support.paths import ROOT
from tests.support.served import WAIT_SECONDS, Server, serve

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra: pip install '.[ray]'"),
    pytest.mark.timeout(1500),
]

BUNDLE = ROOT / "bundles" / "multi30k-en-de"
CONFIG = ROOT / "deploy" / "ray" / "dragoman.yaml"
TEXTS = ("Two dogs are playing in the snow.", "A man in a red shirt plays the guitar.\n\nHe sings.", "Hello.")
# Selects one of several applications; a server with one ignores it.
METADATA = (("application", "dragoman"), ("x-request-id", "mine"))
# Ray starts about six processes, and each imports everything: minutes on a busy machine.
START_SECONDS = 600.0

Status = dict[str, dict[str, Any]]


@dataclass
class Cluster:
    """Ray Serve with the two applications of this test, and its states so far."""

    process: Popen[str]
    server: Server
    log: Path
    states: list[Status] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    ended: bool = False

    def listen(self) -> None:
        """Reads the output of the program to its end."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                with self.changed:
                    self.states.append(json.loads(line))
                    self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def wait_for(self, condition: Callable[[Status], bool]) -> Status:
        """Returns the first state, past ones included, for which the condition holds."""
        with self.changed:
            self.changed.wait_for(lambda: self.ended or any(map(condition, self.states)), START_SECONDS)
            found = next(filter(condition, self.states), None)
            assert found is not None, (self.states[-1:], self.log.read_text()[-2000:])
            return found


def write_config(folder: Path, http_port: int, grpc_port: int) -> Path:
    """Writes the shipped configuration with another bundle, and a second application that never becomes ready."""
    wrong = Path(shutil.copytree(BUNDLE, folder / "wrong"))
    bundle = Bundle.open(wrong)
    first, *others = bundle.golden
    write_golden(wrong, (first.model_copy(update={"target_ids": first.target_ids[1:]}), *others))
    write_manifest(wrong, bundle.manifest.model_copy(update={"files": dict(file_hashes(wrong))}))
    config = yaml.safe_load(CONFIG.read_text())
    config["http_options"].update(host="127.0.0.1", port=http_port)
    config["grpc_options"].update(port=grpc_port)
    (application,) = config["applications"]
    common = {"cpus_per_replica": 1, "slots": 4, "queue_limit": 400}
    quick = {"look_back_seconds": 1.5, "upscale_delay_seconds": 0}
    application["args"] = {**common, **quick, "bundle": str(BUNDLE), "max_replicas": 2}
    broken = {**application, "name": "broken", "route_prefix": "/broken"}
    broken["args"] = {**common, "bundle": str(wrong), "max_replicas": 1, "max_start_attempts": 1}
    config["applications"] = [application, broken]
    path = folder / "ray.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    own = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    # Otherwise Ray writes a token into the home folder.
    own["RAY_AUTH_MODE"] = "disabled"
    # On a busy machine its first process exceeds the default of 30 seconds.
    own["RAY_raylet_start_wait_time_s"] = str(int(START_SECONDS))
    # The controller kills a proxy that takes longer to start, by default 5 seconds.
    own["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"] = str(START_SECONDS)
    with ExitStack() as stack:
        http_port, grpc_port = stack.enter_context(reserve_ports(0, 0))
        config = write_config(tmp_path_factory.mktemp("ray"), http_port, grpc_port)
        command = [sys.executable, "-m", "tests.support.served_ray", str(config)]
        log = stack.enter_context((config.parent / "log").open("w"))
        process = stack.enter_context(Popen(command, stdout=PIPE, stderr=log, text=True, cwd=ROOT, env=own))
        server = Server(process, ready={"http_port": http_port, "grpc_port": grpc_port})
        cluster = Cluster(process, server, config.parent / "log")
        listener = threading.Thread(target=cluster.listen)
        listener.start()
        try:
            cluster.wait_for(lambda status: status.get("dragoman", {}).get("status") == "RUNNING")
            yield cluster
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(WAIT_SECONDS)
            finally:
                process.kill()
                listener.join()


@pytest.fixture(scope="module")
def alone() -> Iterator[Server]:
    with serve(BUNDLE, "--slots", "4", "--engines", "1") as server:
        yield server


Request = tuple[str, str, bytes | None, dict[str, str]]


def post(body: bytes, path: str = "/v1/translate", **headers: str) -> Request:
    return "POST", path, body, {"content-type": "application/json", **headers}


def ask(server: Server, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, Any]:
    """Returns status and document of a response over REST, or joined deltas and result of a stream, without times."""
    with closing(HTTPConnection("127.0.0.1", server.ready["http_port"], timeout=WAIT_SECONDS)) as connection:
        connection.request(method, path, body, {"x-request-id": "mine", **headers})
        response = connection.getresponse()
        text = response.read().decode()
    assert response.getheader("x-request-id") == "mine"
    *deltas, document = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if "{" in line]
    document.pop("timings", None)
    return response.status, ("".join(delta["text"] for delta in deltas), document)


def call(server: Server, data: bytes) -> tuple[Any, ...]:
    """Calls Translate, and returns the response without times, or the whole error."""
    with grpc.insecure_channel(f"127.0.0.1:{server.ready['grpc_port']}") as channel:
        method: Any = channel.unary_unary(TRANSLATE_METHOD, response_deserializer=TranslateResponse.FromString)
        try:
            response = method(data, timeout=WAIT_SECONDS, metadata=METADATA)
        except grpc.RpcError as raised:
            error: Any = raised
            own = {key: value for key, value in error.trailing_metadata() if key != "request_id"}
            return error.code(), error.details(), own
        response.ClearField("timings")
        return (response,)


def call_stream(server: Server, data: bytes) -> tuple[Any, ...]:
    """Calls TranslateStream; returns the joined deltas, whose sizes vary, and the result without times, or status."""
    pieces = ""
    with grpc.insecure_channel(f"127.0.0.1:{server.ready['grpc_port']}") as channel:
        method: Any = channel.unary_stream(STREAM_METHOD, response_deserializer=TranslateStreamResponse.FromString)
        try:
            for event in method(data, timeout=WAIT_SECONDS, metadata=METADATA):
                pieces += event.delta.text
                result = event.result
        except grpc.RpcError as raised:
            error: Any = raised
            return pieces, error.code(), error.details()
    result.ClearField("timings")
    return pieces, result


def message(*texts: str, model: str = "") -> bytes:
    return TranslateRequest(text=texts, model=model).SerializeToString()


def test_translations_are_bitwise_equal_to_those_of_dragoman_serve(cluster: Cluster, alone: Server) -> None:
    request = post(json.dumps({"text": TEXTS, "options": {"beam_size": 2}}).encode())
    rest = ask(cluster.server, *request)
    assert rest[0] == 200
    assert rest == ask(alone, *request)
    assert call(cluster.server, message(*TEXTS)) == call(alone, message(*TEXTS))


def test_streams_equal_those_of_dragoman_serve(cluster: Cluster, alone: Server) -> None:
    request = post(json.dumps({"text": TEXTS[0]}).encode(), "/v1/translate/stream")
    assert ask(cluster.server, *request) == ask(alone, *request)
    pieces, whole = call_stream(cluster.server, message(TEXTS[0]))
    assert pieces == whole.translations[0].text
    assert (pieces, whole) == call_stream(alone, message(TEXTS[0]))
    assert call_stream(cluster.server, message(" ")) == call_stream(alone, message(" "))


@pytest.mark.parametrize(
    ("status", "request_"),
    [
        (400, post(b'{"text": ["fine", " "]}')),
        (400, post(b"{")),
        (400, post(b'{"text": "fine"}', **{"x-request-timeout-ms": "soon"})),
        (404, post(b'{"text": "fine", "model": "none"}')),
        (404, ("GET", "/nowhere", None, {})),
        (405, ("GET", "/v1/translate", None, {})),
        (413, post(b" " * (3 << 20))),
        (415, post(b"text", **{"content-type": "text/plain"})),
    ],
)
def test_errors_over_rest_are_the_same(cluster: Cluster, alone: Server, status: int, request_: Request) -> None:
    answer = ask(cluster.server, *request_)
    assert answer[0] == status
    assert answer == ask(alone, *request_)


@pytest.mark.parametrize(
    ("code", "data"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, message("fine", " ")),
        (grpc.StatusCode.INVALID_ARGUMENT, b"\xff"),
        (grpc.StatusCode.NOT_FOUND, message("fine", model="none")),
    ],
)
def test_errors_over_grpc_are_the_same(cluster: Cluster, alone: Server, code: grpc.StatusCode, data: bytes) -> None:
    answer = call(cluster.server, data)
    assert answer[0] is code
    assert "grpc-status-details-bin" in answer[2]
    assert answer == call(alone, data)


def test_a_bundle_with_wrong_golden_sentences_never_becomes_healthy(cluster: Cluster) -> None:
    failed = cluster.wait_for(lambda status: status.get("broken", {}).get("status") == "DEPLOY_FAILED")
    assert "golden sentence" in failed["broken"]["message"]
    assert {state["broken"]["running"] for state in cluster.states if "broken" in state} == {0}


def test_a_queue_adds_a_replica(cluster: Cluster) -> None:
    """The configured maximum is two."""
    enough = threading.Event()
    body = {"text": [TEXTS[0]] * 60}

    def load() -> None:
        while not enough.is_set():
            cluster.server.post(body)

    with ThreadPoolExecutor() as pool:
        loads = [pool.submit(load) for _ in range(4)]
        try:
            cluster.wait_for(lambda status: status.get("dragoman", {}).get("running") == 2)
        finally:
            enough.set()
        for item in loads:
            item.result(WAIT_SECONDS)
    assert max(state["dragoman"]["running"] for state in cluster.states if "dragoman" in state) == 2
