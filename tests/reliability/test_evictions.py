"""Models that leave and return while clients ask for all of them: native engines, real sessions, real connections."""

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.runtime.onnx_runtime import why_no_kernels
from dragoman.serve.runtime.placement import host_memory_bytes
from tests.support.live import LiveService, eventually, run_service
from tests.support.processes import resident_bytes

BUNDLE = Path(__file__).parents[2] / "bundles" / "multi30k-en-de"
MODELS, FIT, CLIENTS = 20, 4, 6
SLOTS = 8
# Threads of the clients and of the event loop that wait for more work.
POOLED = CLIENTS + 8


def test_no_request_fails_while_twenty_models_share_the_memory_of_four(tmp_path: Path, soak_seconds: float) -> None:
    """Threads and open files do not grow; `make evictions` runs it for longer."""
    if reason := why_no_kernels():
        pytest.skip(reason)
    for number in range(MODELS):
        (tmp_path / f"pair-{number}").symlink_to(BUNDLE)
    limit = FIT * host_memory_bytes(Bundle.open(BUNDLE), 1, SLOTS)
    sizes: dict[str, Any] = {"engines": 1, "slots": SLOTS, "memory_limit": limit, "model_idle_seconds": 0.2}
    with run_service(tmp_path, [], **sizes) as live, ThreadPoolExecutor(CLIENTS) as pool:
        for number in range(MODELS):
            assert translate(live, number) == (200, "Zwei Hunde spielen im Schnee.")
        eventually(lambda: not live.service.models.present)
        before, before_bytes = resources(), resident_bytes()
        until_seconds = time.monotonic() + soak_seconds
        found = Counter[tuple[int, str]]()
        for part in pool.map(lambda seed: ask_until(live, seed, until_seconds), range(CLIENTS)):
            found += part
        assert set(found) == {(200, "Zwei Hunde spielen im Schnee.")}
        assert live.metric("model_evictions_total") > MODELS
        eventually(lambda: not live.service.models.present)
        assert live.metric("model_memory_bytes") == 0
        print(f"{found.total()} requests, {live.metric('model_evictions_total'):.0f} evictions")
        print(f"memory: {before_bytes / 1e6:.0f} MB before, {resident_bytes() / 1e6:.0f} MB after the evictions")
        assert resident_bytes() < before_bytes + limit
        eventually(lambda: all(now <= then + POOLED for now, then in zip(resources(), before, strict=True)))


def translate(live: LiveService, number: int) -> tuple[int, str]:
    answer = live.post({"text": "Two dogs are playing in the snow.", "model": f"pair-{number}"})
    return answer.status_code, answer.json().get("translations", [answer.json()])[0].get("text", answer.text)


def ask_until(live: LiveService, seed: int, until_seconds: float) -> Counter[tuple[int, str]]:
    """Asks for models, some more often than others, at least until one has left again."""
    generator, found = random.Random(seed), Counter[tuple[int, str]]()
    while time.monotonic() < until_seconds or not found or live.metric("model_evictions_total") <= MODELS:
        found[translate(live, min(generator.randrange(MODELS), generator.randrange(MODELS)))] += 1
    return found


def resources() -> tuple[int, int]:
    """Returns the numbers of threads and of open files."""
    return len(list(Path("/proc/self/task").iterdir())), len(list(Path("/proc/self/fd").iterdir()))
