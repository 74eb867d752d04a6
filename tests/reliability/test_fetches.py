"""Models that a real server fetches from a hub on this machine, while other clients use it.

`make fetches` runs it with the sizes of public models, a hundred clients and twenty pairs, and prints figures.
"""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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


def test_pairs_are_fetched_once_each_while_others_are_served_within_the_memory(tmp_path: Path, thorough: bool) -> None:
    asked, pairs, clients = (PAIRS[:5], PAIRS[:20], 100) if thorough else (PAIRS[:2], PAIRS[:3], 6)
    with serve_pairs(tmp_path, pairs, large=thorough) as (hub, server), ThreadPoolExecutor(clients) as pool:
        quiet = [ask(server, "en-de") for _ in range(2000 if thorough else 20)]
        assert not hub.requests, "the start asks for nothing"
        waiting = [pool.submit(ask, server, pair) for pair in asked * (clients // len(asked))]
        busy = list[float]()
        while len(busy) < 20 or not all(item.done() for item in waiting):
            busy.append(ask(server, "en-de"))
        seconds = [item.result() for item in waiting]
        fetched = Counter(path for _, path, _ in hub.requests if "exported/model" in path)
        assert (len(fetched), set(fetched.values())) == (len(asked), {1})
        print(f"{clients} clients, {len(asked)} pairs: answered after {min(seconds):.1f} to {max(seconds):.1f} s")
        print(f"others: p99 {p99(quiet):.1f} ms before, {p99(busy):.1f} ms meanwhile, {len(busy)} requests")
        print(f"first answer of {LARGE}: after {ask(server, LARGE):.1f} s")
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


def p99(seconds: list[float]) -> float:
    return float(np.percentile(seconds, 99)) * 1000
