"""Models that a real server fetches from a hub on this machine, while other clients use it.

`make fetches` runs it with the sizes of public models, a hundred clients and twenty pairs, and prints figures.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from tests.support.fake_hub import FakeHub, run_hub
from tests.support.firefox_registry import large_student_files, student_files
from tests.support.hub_program import variables
from tests.support.large_models import Form
from tests.support.processes import resident_bytes
from tests.support.served import Server, serve

BUNDLE = Path(__file__).parents[2] / "bundles" / "multi30k-en-de"
TINY = Form(width=256, inner=1536, layers=6, heads=8, vocabulary=32_000)
BASE = Form(width=512, inner=2048, layers=6, heads=8, vocabulary=32_000)
LANGUAGES = ("bg", "cs", "es", "et", "fi", "fr", "hu", "it", "nl", "pl", "pt", "sv", "uk")
PAIRS = tuple(pair for code in LANGUAGES for pair in (f"{code}-en", f"en-{code}"))
MEMORY_BYTES = 10**9
LARGE = "de-en"


@contextmanager
def serve_pairs(folder: Path, pairs: tuple[str, ...], *, large: bool) -> Iterator[tuple[FakeHub, Server]]:
    """Runs a hub with these pairs and `LARGE`, and a server that has none of them yet."""
    with run_hub() as hub, pytest.MonkeyPatch.context() as patch:
        for pair in pairs:
            hub.registry.add(pair, large_student_files(folder, TINY) if large else student_files(folder))
        hub.registry.add(LARGE, large_student_files(folder, BASE) if large else student_files(folder))
        for name, value in {**variables(hub), "DRAGOMAN_CACHE": str(folder / "cache")}.items():
            patch.setenv(name, value)
        options = ("--on-demand", ",".join((*pairs, LARGE)), "--memory-limit", "600MB")
        with serve(BUNDLE, *options, "--request-timeout-seconds", "600") as server:
            yield hub, server


def ask(server: Server, pair: str) -> float:
    """Asks for a translation, and returns the seconds to the answer."""
    source, target = pair.split("-")
    began_seconds = time.monotonic()
    status, body = server.post({"text": "Two dogs play.", "source_language": source, "target_language": target})
    assert status == 200, body
    return time.monotonic() - began_seconds


def seconds_of(port: int, requests: int) -> list[float]:
    """Returns the seconds of requests for the first model, one after the other, of a process without other work."""
    body = json.dumps({"text": "Two dogs play.", "source_language": "en", "target_language": "de"})
    seconds = list[float]()
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        for _ in range(requests):
            began_seconds = time.monotonic()
            connection.request("POST", "/v1/translate", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            assert response.status == 200, response.read()
            response.read()
            seconds.append(time.monotonic() - began_seconds)
    return seconds


def test_pairs_are_fetched_once_each_while_others_are_served_within_the_memory(tmp_path: Path, thorough: bool) -> None:
    asked, pairs, clients = (PAIRS[:5], PAIRS[:20], 100) if thorough else (PAIRS[:1], PAIRS[:1], 6)
    with (
        serve_pairs(tmp_path, pairs, large=thorough) as (hub, server),
        ThreadPoolExecutor(clients) as pool,
        ProcessPoolExecutor(1, get_context("spawn")) if thorough else ThreadPoolExecutor(1) as others,
    ):
        port = server.ready["http_port"]
        quiet = [item for _ in range(100 if thorough else 1) for item in others.submit(seconds_of, port, 20).result()]
        assert not hub.requests, "the start asks for nothing"
        if thorough:
            print(f"first answer of {LARGE}: after {ask(server, LARGE):.1f} s")
            hub.requests.clear()
            yield_to_the_server()
        waiting = [pool.submit(ask, server, pair) for pair in asked * (clients // len(asked))]
        busy = list[float]()
        while len(busy) < 20 or not all(item.done() for item in waiting):
            busy += others.submit(seconds_of, port, 20 if thorough else 5).result()
            wait(waiting, 0 if thorough else 0.3)
        seconds = [item.result() for item in waiting]
        fetched = Counter(path for _, path, _ in hub.requests if "exported/model" in path)
        assert (len(fetched), set(fetched.values())) == (len(asked), {1})
        print(f"{clients} clients, {len(asked)} pairs: answered after {min(seconds):.1f} to {max(seconds):.1f} s")
        print(f"others: p99 {p99(quiet):.1f} ms before, {p99(busy):.1f} ms meanwhile, {len(busy)} requests")
        for pair in pairs:
            ask(server, pair)
        loads, load_seconds = server.metric("model_load_seconds_count"), server.metric("model_load_seconds_sum")
        for pair in pairs:
            ask(server, pair)
        again = server.metric("model_load_seconds_count") - loads
        spent = server.metric("model_load_seconds_sum") - load_seconds
        memory = resident_bytes(server.process.pid)
        print(
            f"{len(pairs)} pairs: {memory / 1e6:.0f} MB; {again:.0f} loads, {1000 * spent / max(again, 1):.0f} ms each"
        )
        assert memory < MEMORY_BYTES


def yield_to_the_server() -> None:
    """Gives the threads of this process a low priority: in use, hub and clients have machines of their own."""
    for thread in Path("/proc/self/task").iterdir():
        os.setpriority(os.PRIO_PROCESS, int(thread.name), 19)


def p99(seconds: list[float]) -> float:
    return float(np.percentile(seconds, 99)) * 1000
