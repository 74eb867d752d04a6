"""A server as users start it, a separate process, and small clients for both protocols."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

import grpc
from prometheus_client.parser import text_string_to_metric_families

from dragoman.protos.translation_pb2 import FinishReason, TranslateRequest, TranslateResponse
from tests.support.forked import ForkedPopen
from tests.support.live import TRANSLATE_METHOD
from tests.support.paths import ROOT

# Several processes import everything and load a model.
WAIT_SECONDS = 120.0

# Independent of concurrent requests.
FIELDS = ("text", "score", "source_tokens", "target_tokens", "finish_reason")
Answer = tuple[Any, ...]


@dataclass
class Server:
    """A running server and its log so far."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    ready: dict[str, Any] = field(default_factory=dict)
    settled: threading.Event = field(default_factory=threading.Event)

    def read_log(self) -> None:
        """Reads the log to its end, so that the server never blocks on it."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            if '"event": "ready"' in line:
                self.ready = json.loads(line)
                self.settled.set()
        self.settled.set()

    def rest(self, *texts: str, model: str = "") -> list[Answer]:
        status, body = self.post({"text": list(texts), "model": model})
        assert status == 200, body
        return [itemgetter(*FIELDS)(translation) for translation in json.loads(body)["translations"]]

    def post(self, body: object, path: str = "/v1/translate", **headers: str) -> tuple[int, str]:
        """Sends one request, by default a translation, and returns status and body."""
        return self.request("POST", path, json.dumps(body), **headers)

    def request(self, method: str, path: str, body: str | None = None, **headers: str) -> tuple[int, str]:
        """Sends one request, with a body in JSON unless `headers` name another type, and returns status and body."""
        with closing(HTTPConnection("127.0.0.1", self.ready["http_port"], timeout=WAIT_SECONDS)) as connection:
            connection.request(method, path, body, {"Content-Type": "application/json", **headers})
            response = connection.getresponse()
            return response.status, response.read().decode()

    def grpc(self, *texts: str, model: str = "") -> list[Answer]:
        with grpc.insecure_channel(f"127.0.0.1:{self.ready['grpc_port']}") as channel:
            method: Any = channel.unary_unary(
                TRANSLATE_METHOD, TranslateRequest.SerializeToString, TranslateResponse.FromString
            )
            response: TranslateResponse = method(TranslateRequest(text=texts, model=model), timeout=WAIT_SECONDS)
        return [
            (
                *attrgetter(*FIELDS[:-1])(translation),
                FinishReason.Name(translation.finish_reason).removeprefix("FINISH_REASON_").lower(),
            )
            for translation in response.translations
        ]

    def metric(self, name: str) -> float:
        _, text = self.request("GET", "/metrics")
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        values = [sample.value for sample in samples if sample.name == f"dragoman_{name}"]
        assert values, f"no series dragoman_{name}"
        return sum(values)

    def company(self) -> float:
        """Returns the number of sequences so far that shared a run of the model with another one."""
        return self.metric("engine_step_sequences_sum") - self.metric("engine_step_sequences_count")


@contextmanager
def serve(bundle: Path | None, *options: str) -> Iterator[Server]:
    """Runs a server, by default of the included bundle; the block begins when it is ready or has ended."""
    command = [sys.executable, "-m", "dragoman", "serve", *([] if bundle is None else [str(bundle)])]
    command += ["--host", "127.0.0.1", "--http-port", "0", "--grpc-port", "0", "--lame-duck-seconds", "0", *options]
    with ForkedPopen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        server = Server(process)
        reader = threading.Thread(target=server.read_log)
        reader.start()
        try:
            assert server.settled.wait(WAIT_SECONDS)
            yield server
        finally:
            process.kill()
            reader.join()
