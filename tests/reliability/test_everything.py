"""A service with everything on, for `--soak-seconds`; `make everything` runs it for hours.

Two processes serve a model, pairs of a hub that come and go, documents, corrections and gRPC. Meanwhile models are
replaced, workers are restarted and killed, and hostile clients attack.
"""

import asyncio
import json
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from dragoman.loadtest.reliability.soak import ADMIN_KEY, replace_model
from dragoman.serve.host.state import State
from dragoman.serve.memory.corrections import CorrectionStore
from dragoman.serve.memory.entry import OPERATOR
from dragoman.serve.runtime.onnx_runtime import why_no_kernels
from tests.support.attacks.families import FAMILIES
from tests.support.attacks.run import Attack, run_attack
from tests.support.fake_hub import run_hub
from tests.support.firefox_registry import student_files
from tests.support.hub_program import variables
from tests.support.live import eventually
from tests.support.paths import ROOT
from tests.support.processes import children, resident_bytes
from tests.support.served import WAIT_SECONDS, Server, serve

PAIRS = ("bg", "cs", "es", "et", "fi", "fr", "hu", "it", "nl", "pl")
TEXTS = ("Two dogs play in the snow.", "A man is riding a bike.", "A woman reads a book. Children listen to her.")
TARGET = {"source_language": "en", "target_language": "de", "model": "own"}
PROCESSES, TRIES = 2, 5
# Clients of the service, and what a killed worker may have besides: the parts of a document.
LOST_PER_KILL = 10
# The service is undisturbed for this time between two disturbances, and an attack lasts as long.
EVERY_SECONDS = 15.0
# Memory that the service may take in the second half of the time.
MORE_BYTES = 64 << 20


@dataclass
class Soak:
    """A service, its state, and what its clients saw; `seconds` are those of plain translations."""

    server: Server
    state: State
    bundle: Path
    until_seconds: float
    answers: dict[object, object] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    memory_bytes: list[int] = field(default_factory=list)

    def workers(self) -> list[int]:
        """Returns the forks of the supervisor, whose other children run other programs."""
        supervisor = self.server.process.pid
        return [item for item in children(supervisor) if program(item) == program(supervisor)]

    def logged(self, event: str) -> int:
        """Returns how many lines the service has logged for an event."""
        return sum(f'"event": "{event}"' in line for line in list(self.server.lines))

    def ask(self, path: str, body: object = None, method: str = "POST") -> Any:
        """Returns the answer, parsed if it is JSON. Repeats a request that loses its connection, as clients do."""
        for _ in range(TRIES):
            try:
                sent = None if method != "POST" else body if isinstance(body, str) else json.dumps(body)
                status, text = self.server.request(method, path, sent)
            except (HTTPException, OSError):
                self.counts["lost connections"] += 1
            else:
                assert status < HTTPStatus.BAD_REQUEST, (method, path, body, status, text)
                return json.loads(text) if text.startswith("{") else text
        raise AssertionError(f"{method} {path}: lost {TRIES} connections")

    def check_equal(self, request: object, answer: object) -> None:
        """Fails if the same request had another answer before."""
        assert self.answers.setdefault(request, answer) == answer, request


def program(process_id: int) -> bytes:
    return Path(f"/proc/{process_id}/cmdline").read_bytes()


def translate(soak: Soak, generator: random.Random) -> None:
    text, began_seconds = generator.choice(TEXTS), time.monotonic()
    answer = soak.ask("/v1/translate", {"text": text, **TARGET})
    soak.seconds.append(time.monotonic() - began_seconds)
    soak.check_equal(text, [item["text"] for item in answer["translations"]])
    time.sleep(0.02)


def translate_by_grpc(soak: Soak, generator: random.Random) -> None:
    text = generator.choice(TEXTS)
    try:
        soak.check_equal(("gRPC", text), soak.server.grpc(text, model="own"))
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.UNAVAILABLE:
            raise
        soak.counts["lost connections"] += 1
    time.sleep(0.05)


def translate_pair(soak: Soak, generator: random.Random) -> None:
    pair = generator.choice(PAIRS)
    answer = soak.ask("/v1/translate", {"text": TEXTS[0], "source_language": "en", "target_language": pair})
    soak.check_equal(pair, [item["text"] for item in answer["translations"]])
    time.sleep(0.2)


def translate_document(soak: Soak, generator: random.Random) -> None:
    content = "".join(f"<p>{generator.choice(TEXTS)}</p>" for _ in range(8))
    query = "&".join(f"{name}={value}" for name, value in {"name": "a.html", **TARGET}.items())
    document = f"/v1/documents/{soak.ask(f'/v1/documents?{query}', content)['id']}"
    while (found := soak.ask(document, method="GET"))["status"] != "done":
        assert found["status"] in {"queued", "translating"}, found
        time.sleep(0.1)
    soak.check_equal(content, soak.ask(f"{document}/result", method="GET"))
    soak.ask(document, method="DELETE")


def correct(soak: Soak, generator: random.Random) -> None:
    """Corrects a new sentence and approves it; the next translation is the correction."""
    source, target = (f"{generator.getrandbits(64):x} {word}." for word in ("snow", "Schnee"))
    languages = {"source_language": "en", "target_language": "de"}
    number = soak.ask("/v1/corrections", {**languages, "source": source, "target": target})["id"]
    CorrectionStore(soak.state).approve(OPERATOR, [number])
    (answer,) = soak.ask("/v1/translate", {"text": source, **TARGET, "memory": "corrections"})["translations"]
    assert (answer["text"], answer["origin"]) == (target, "memory")
    time.sleep(0.5)


CLIENTS = (translate, translate, translate_by_grpc, translate_pair, translate_pair, translate_document, correct)


def repeat(client: Callable[[Soak, random.Random], None], soak: Soak, seed: int) -> None:
    """Runs a client until the time is over, at least once; a failure ends all clients."""
    generator = random.Random(seed)
    try:
        while soak.counts[client.__name__] == 0 or time.monotonic() < soak.until_seconds:
            client(soak, generator)
            soak.counts[client.__name__] += 1
    except BaseException:
        soak.until_seconds = 0.0
        raise


def disturb(soak: Soak, generator: random.Random) -> None:
    """Replaces the model, restarts the workers or kills one, and attacks."""
    process, ports = soak.server.process, soak.server.ready
    assert asyncio.run(replace_model(f"http://127.0.0.1:{ports['http_port']}", soak.bundle))
    soak.counts["reloads"] += 1
    killed = soak.counts["reloads"] % 3 == 0
    event = "worker_ready" if killed else "restarted"
    before = soak.logged(event)
    if killed:
        os.kill(generator.choice(soak.workers()), signal.SIGKILL)
        soak.counts["kills"] += 1
    else:
        process.send_signal(signal.SIGUSR2)
    eventually(lambda: soak.logged(event) > before)
    name = generator.choice(sorted(FAMILIES))
    left_seconds = min(EVERY_SECONDS, soak.until_seconds - time.monotonic())
    attack = Attack(name, ports[f"{FAMILIES[name].port.replace('rest', 'http')}_port"], max(0.5, left_seconds))
    answers = asyncio.run(run_attack(attack)).answers
    soak.counts.update({f"attack {name}": sum(answers.values())})
    soak.memory_bytes.append(sum(map(resident_bytes, (process.pid, *soak.workers()))))


def test_nothing_is_lost_while_everything_is_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, soak_seconds: float
) -> None:
    """Same requests have the same answers in all processes; the memory does not grow in the second half of the time."""
    if reason := why_no_kernels():
        pytest.skip(reason)
    bundle = shutil.copytree(ROOT / "bundles" / "multi30k-en-de", tmp_path / "models" / "own")
    options = ["--state-dir", str(tmp_path / "state"), "--corrections", "--memory-limit", "200MB"]
    options += ["--processes", str(PROCESSES), "--admin-key", ADMIN_KEY, "--model-idle-seconds", "5"]
    with run_hub() as hub, closing(State(tmp_path / "state")) as state, ThreadPoolExecutor(len(CLIENTS)) as pool:
        for code in PAIRS:
            hub.registry.add(f"en-{code}", student_files(tmp_path))
        for name, value in {**variables(hub), "DRAGOMAN_CACHE": str(tmp_path / "cache")}.items():
            monkeypatch.setenv(name, value)
        options += ["--on-demand", ",".join(f"en-{code}" for code in PAIRS)]
        with serve(tmp_path / "models", *options) as server:
            soak = Soak(server, state, bundle, time.monotonic() + soak_seconds / 10)
            repeat(translate, soak, 0)
            alone, soak.seconds = soak.seconds, []
            soak.until_seconds = time.monotonic() + soak_seconds
            running = [pool.submit(repeat, client, soak, number) for number, client in enumerate(CLIENTS)]
            repeat(disturb, soak, 0)
            for item in running:
                item.result()
            p99, busy_p99 = (1000 * float(np.percentile(item, 99)) for item in (alone, soak.seconds))
            print(dict(soak.counts), [size >> 20 for size in soak.memory_bytes], "MiB")
            print(f"p99 of a translation: {p99:.1f} ms alone, {busy_p99:.1f} ms with everything on")
            assert soak.counts["lost connections"] <= LOST_PER_KILL * soak.counts["kills"]
            half = len(soak.memory_bytes) // 2
            assert max(soak.memory_bytes[half:]) <= max(soak.memory_bytes[: half + 1]) + MORE_BYTES
            server.process.terminate()
            assert server.process.wait(WAIT_SECONDS) == 0
