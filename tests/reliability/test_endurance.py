"""A server process under mixed load for a chosen time, and its state afterwards.

Most requests are valid. The others are canceled, killed, late, too large or invalid; meanwhile models are replaced and
metrics are read. Afterwards the counts are reconciled.
"""

import json
import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from itertools import cycle
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from model.tokenizer.tokenizer import Tokenizer
from protos.translation_pb2 import TranslateRequest
from tests.support.live import (
    LONG_TEXT,
    STREAM_METHOD,
    TRANSLATE_METHOD,
    WAIT_SECONDS,
    direction,
    eventually,
    put_bundle,
)
from tests.support.processes import start_process
from tests.support.promises import Measured

CLIENTS = 6
JSON = {"content-type": "application/json"}
MODELS, VERSIONS = ("changing", "steady"), ("old", "new")
BODIES = [json.dumps({"text": LONG_TEXT, "model": model}) for model in MODELS]
MESSAGES = [TranslateRequest(text=[LONG_TEXT], model=model).SerializeToString() for model in MODELS]
# Limits of R30 for a long run: largest distance from the mean, and growth.
MEMORY_MEBIBYTES, GROWTH_MEBIBYTES_PER_HOUR, LONG_SECONDS = 32.0, 1.0, 1800.0


@dataclass
class Soaked:
    """A server, and the outcomes that its clients saw.

    Attributes:
        folder: the models.
        seen: outcomes by kind of request.
        unexpected: outcomes that their kind does not allow.
        sent: number of requests; the server counts each of them, except for some that are reset.
        log: the last lines.
    """

    process: subprocess.Popen[str]
    http_port: int
    grpc_port: int
    folder: Path
    seen: Counter[str] = field(default_factory=Counter)
    unexpected: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    log: deque[str] = field(default_factory=lambda: deque(maxlen=100))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, kind: str, outcome: str, allowed: set[str]) -> None:
        """Counts a request."""
        with self.lock:
            self.sent += 1
            self.seen[kind] += 1
            if outcome not in allowed:
                self.unexpected[f"{kind}: {outcome}"] += 1

    def replace(self, version: str) -> None:
        """Replaces the changing model by another version, by renaming, and reloads."""
        link = self.folder / ".new"
        link.symlink_to(self.folder / ".versions" / version)
        link.rename(self.folder / MODELS[0])
        self.process.send_signal(signal.SIGHUP)
        self.seen["reload"] += 1

    def metric(self, name: str) -> float:
        """Returns the sum of the series of a name."""
        with closing(self.connect()) as connection:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return sum(sample.value for sample in samples if sample.name == f"dragoman_{name}")

    def connect(self) -> HTTPConnection:
        """Returns a new connection."""
        return HTTPConnection("127.0.0.1", self.http_port, timeout=WAIT_SECONDS)

    def open_files(self) -> int:
        """Returns the number of open files of the server, with connections."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))  # noqa: PTH208 - only their number

    def threads(self) -> int:
        """Returns the number of threads of the server."""
        return len(os.listdir(f"/proc/{self.process.pid}/task"))  # noqa: PTH208

    def memory_mebibytes(self) -> float:
        """Returns the resident memory of the server."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024


@pytest.fixture
def soaked(tokenizer: Tokenizer, tmp_path: Path) -> Iterator[Soaked]:
    for number, version in enumerate(VERSIONS):
        put_bundle(tmp_path / ".versions" / version, tokenizer, direction("en-de", 7 + number))
    for model in MODELS:
        (tmp_path / model).symlink_to(tmp_path / ".versions" / VERSIONS[0])
    with start_process(tmp_path, "open", "--queue-limit", "200", "--max-body-bytes", "20000") as process:
        assert process.stderr is not None
        ready = json.loads(process.stderr.readline())
        soaked = Soaked(process, ready["http_port"], ready["grpc_port"], tmp_path)
        # the server never blocks on its log
        reading = threading.Thread(target=soaked.log.extend, args=(process.stderr,))
        reading.start()
        yield soaked
        process.kill()
        reading.join()


def post(
    soaked: Soaked, kind: str, body: str | bytes, allowed: set[str], path: str = "/v1/translate", **more: str
) -> None:
    with closing(soaked.connect()) as connection:
        connection.request("POST", path, body, JSON | more)
        answer = connection.getresponse()
        answer.read()
        soaked.note(kind, str(answer.status), allowed)


def ask(soaked: Soaked, chance: random.Random) -> None:
    post(soaked, "usual", chance.choice(BODIES), {"200"}, chance.choice(["/v1/translate", "/v1/translate/stream"]))


def ask_grpc(soaked: Soaked, chance: random.Random) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{soaked.grpc_port}") as channel:
        if chance.random() < 0.5:
            unary: Any = channel.unary_unary(TRANSLATE_METHOD)
            outcome = unary.future(chance.choice(MESSAGES), timeout=WAIT_SECONDS).code()
        else:
            streaming: Any = channel.unary_stream(STREAM_METHOD)
            stream = streaming(chance.choice(MESSAGES), timeout=WAIT_SECONDS)
            with suppress(grpc.RpcError):
                list(stream)
            outcome = stream.code()
    soaked.note("usual", outcome.name, {"OK"})


def go_away(soaked: Soaked, chance: random.Random) -> None:
    """Closes the connection normally or with a reset; after a reset the server may have missed the request."""
    reset = chance.random() < 0.5
    with closing(soaked.connect()) as connection:
        path = chance.choice(["/v1/translate", "/v1/translate/stream"])
        connection.request("POST", path, chance.choice(BODIES), JSON)
        time.sleep(chance.random() * 0.02)
        if reset:
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, *bytes(7)]))
    soaked.note("reset" if reset else "cancelled", "", {""})


def be_late(soaked: Soaked, chance: random.Random) -> None:
    milliseconds = str(chance.randint(1, 5))
    post(soaked, "late", chance.choice(BODIES), {"200", "504", "429"}, **{"x-request-timeout-ms": milliseconds})


def be_huge(soaked: Soaked, chance: random.Random) -> None:
    text = "alpha " * chance.choice([3_000, 30_000])
    try:
        post(soaked, "huge", json.dumps({"text": text}), {"400", "413"})
    except ConnectionError:  # the server does not read a body beyond its limit
        soaked.note("huge", "", {""})


def be_wrong(soaked: Soaked, chance: random.Random) -> None:
    wrong = [b"", b"{", b"\xff", b'{"text": 1}', b'{"text": ""}', b'{"text": "a", "what": 1}', b"[" * 10_000]
    post(soaked, "invalid", chance.choice(wrong), {"400"})


def read_metrics(soaked: Soaked, _: random.Random) -> None:
    with closing(soaked.connect()) as connection:
        connection.request("GET", "/metrics")
        assert connection.getresponse().read()
    with soaked.lock:
        soaked.seen["read metrics"] += 1


KINDS: list[tuple[Callable[[Soaked, random.Random], None], int]] = [
    (ask, 50),
    (ask_grpc, 30),
    (go_away, 8),
    (be_late, 5),
    (be_huge, 2),
    (be_wrong, 4),
    (read_metrics, 1),
]


def slope_per_hour(seconds: list[float], values: list[float]) -> float:
    """Returns the growth of values per hour, by least squares."""
    return float(np.polyfit(seconds, values, 1)[0]) * 3600


def spread(values: list[float]) -> float:
    """Returns the largest distance above the mean, without the highest and lowest 5 %."""
    kept = sorted(values)[len(values) // 20 : len(values) - len(values) // 20]
    return max(kept) - sum(kept) / len(kept)


def test_a_memory_leak_is_detected() -> None:
    """The measure of the next test detects a leak."""
    seconds, noise = list(range(1800)), np.random.default_rng(1).normal(scale=2.0, size=1800)
    steady = [200.0 + each for each in noise]
    assert abs(slope_per_hour(list(map(float, seconds)), steady)) < GROWTH_MEBIBYTES_PER_HOUR
    assert spread(steady) < MEMORY_MEBIBYTES
    leaking = [each + second / 400 for second, each in zip(seconds, steady, strict=True)]
    assert slope_per_hour(list(map(float, seconds)), leaking) > GROWTH_MEBIBYTES_PER_HOUR
    assert spread([*steady[:900], *(each + 100 for each in steady[900:])]) > MEMORY_MEBIBYTES


@pytest.mark.promise("R35")
@pytest.mark.promise("R33")
@pytest.mark.promise("R30")
def test_a_server_withstands_mixed_load(soaked: Soaked, measured: Measured, soak_seconds: float) -> None:
    over, samples = threading.Event(), list[tuple[float, float]]()
    functions, weights = zip(*KINDS, strict=True)
    ask(soaked, random.Random(0))
    ask_grpc(soaked, random.Random(0))
    idle = soaked.open_files(), soaked.threads()

    def live(client: int) -> None:
        chance = random.Random(client)
        while not over.is_set():
            chance.choices(functions, weights)[0](soaked, chance)

    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(live, client) for client in range(CLIENTS)]
        begun_seconds, versions = time.monotonic(), cycle(VERSIONS[::-1])
        while (seconds := time.monotonic() - begun_seconds) < soak_seconds:
            if soaked.process.poll() is not None or soaked.unexpected:
                break
            samples.append((seconds, soaked.memory_mebibytes()))
            soaked.replace(next(versions))
            assert not over.wait(max(0.5, soak_seconds / 1000))
        over.set()
        assert soaked.process.poll() is None, "".join(soaked.log)
        for client in clients:
            client.result(WAIT_SECONDS)
    assert not soaked.unexpected, "".join(soaked.log)
    eventually(lambda: soaked.metric("inflight_requests") == 0)
    for gauge in ("sequences_running", "sequences_waiting", "rows_running"):
        eventually(lambda gauge=gauge: soaked.metric(gauge) == 0)  # type: ignore[misc]
    counted = soaked.metric("requests_total")
    assert soaked.sent - soaked.seen["reset"] <= counted <= soaked.sent
    assert counted == soaked.metric("request_duration_seconds_count")
    assert soaked.metric("requests_total") == counted, "reading metrics is no request"
    eventually(lambda: soaked.open_files() <= idle[0] + 5)
    assert soaked.threads() <= idle[1] + 5
    measured(
        "R35", f"{soak_seconds:.0f} s: {', '.join(f'{n:,} {kind}' for kind, n in soaked.seen.items())}; unexpected: 0"
    )
    resets = soaked.seen["reset"]
    measured(
        "R33", f"sent {soaked.sent:,}, {resets:,} with a reset; counted {counted:,.0f}, as durations too; gauges 0"
    )
    second_half = samples[len(samples) // 2 :]
    values = [value for _, value in second_half]
    growth = slope_per_hour(*map(list, zip(*second_half, strict=True)))
    if soak_seconds >= LONG_SECONDS:
        assert spread(values) <= MEMORY_MEBIBYTES
        assert growth <= GROWTH_MEBIBYTES_PER_HOUR
    measured("R30", memory_figure(soak_seconds, values, growth))
    assert soaked.process.poll() is None
    soaked.process.send_signal(signal.SIGTERM)
    assert soaked.process.wait(WAIT_SECONDS) == 0


def memory_figure(seconds: float, values: list[float], growth: float) -> str:
    """Returns the memory figure; seconds are too short for a growth per hour."""
    figure = f"second half of {seconds:,.0f} s: {max(values):.0f} MiB at most, {spread(values):.1f} above the mean"
    return f"{figure}, growth {growth:+.1f} MiB an hour" if seconds >= LONG_SECONDS else figure
