"""Fuzzes a running server with damaged bodies, documents and glossaries, next to a prober of both interfaces.

A problem is an answer with a 5xx status that is not allowed, an error in the log, or a failed probe.
"""

import asyncio
import random
import re
import time
import zipfile
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import grpc.aio
import httpx
import uvloop

from dragoman.protos.translation_pb2 import TranslateRequest
from dragoman.protos.translation_pb2_grpc import TranslationServiceStub
from dragoman.serve.host.server_process import HOST, ServerProcess, reserve_ports
from tests.support.attacks.fuzz_inputs import BODIES, DOCUMENTS, GLOSSARIES, body, document

ATTACKERS = 4
ANSWER_SECONDS = 30.0
READY_SECONDS = 60.0
PROBE_SECONDS = 0.1
POLL_SECONDS = 0.05
REPEATS = 5_000
TOKENS = b'\0 \xa1 &# < { [ " 9 % \n &amp; \xef\xbf\xbf %d {n} * - : # @ 00:'.split(b" ")
ERROR = re.compile(r'"level": "(error|critical)"|^Traceback|"outcome": "internal"', re.MULTILINE)
# Clients may try again.
ALLOWED = (429, 503)
JSON = {"content-type": "application/json"}


@dataclass
class Found:
    """What a fuzz saw."""

    answers: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    slowest_seconds: dict[str, float] = field(default_factory=dict)

    def answer(self, kind: str, status: object, seconds: float) -> None:
        self.answers[f"{kind}: {status}"] += 1
        self.slowest_seconds[kind] = max(seconds, self.slowest_seconds.get(kind, 0.0))


def damage(data: bytes, chance: random.Random) -> bytes:
    """Returns data with one to four damages: bytes that are changed, lost, doubled, inserted, repeated or cut off."""
    for _ in range(chance.randint(1, 4)):
        start = chance.randint(0, len(data))
        end = min(len(data), start + chance.randint(1, 12))
        token = chance.choice(TOKENS)
        inserted = chance.choice((b"", data[start:end] * 2, token, chance.randbytes(3), token * REPEATS))
        data = data[:start] + inserted + data[end:]
        if chance.random() < 0.1:
            data = data[:start]
    return data


def damage_package(data: bytes, chance: random.Random) -> bytes:
    """Returns a ZIP package one of whose members is damaged."""
    stream = BytesIO()
    with zipfile.ZipFile(BytesIO(data)) as old, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as new:
        chosen = chance.choice(old.namelist())
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, damage(content, chance) if name == chosen else content)
    return stream.getvalue()


class Attacker:
    """One client that sends damaged requests until its time is over."""

    def __init__(self, http_port: int, found: Found, seed: int) -> None:
        self._http_port = http_port
        self._found = found
        self._chance = random.Random(seed)

    async def run(self, end_seconds: float) -> None:
        kinds = (self._rest, self._document, self._document, self._glossary)
        async with httpx.AsyncClient(
            base_url=f"http://{HOST}:{self._http_port}", timeout=ANSWER_SECONDS, trust_env=False
        ) as client:
            while time.monotonic() < end_seconds:
                kind = self._chance.choice(kinds)
                name, begun_seconds = kind.__name__.strip("_"), time.monotonic()
                try:
                    status: object = await kind(client)
                except (httpx.HTTPError, OSError, TimeoutError) as error:
                    status = type(error).__name__
                    if isinstance(error, httpx.TimeoutException):
                        self._found.problems[f"{name}: no answer"] += 1
                self._found.answer(name, status, time.monotonic() - begun_seconds)

    async def _rest(self, client: httpx.AsyncClient) -> int:
        path = self._chance.choice(tuple(BODIES))
        return self._status(path, await client.post(path, content=damage(body(path), self._chance), headers=JSON))

    async def _document(self, client: httpx.AsyncClient) -> str:
        name = self._chance.choice(tuple(DOCUMENTS))
        content = document(name)
        packed = content.startswith(b"PK") and self._chance.random() < 0.8
        content = (damage_package if packed else damage)(content, self._chance)
        fields = {"source_language": "en", "target_language": "de"}
        created = await client.post("/v1/documents", data=fields, files={"file": (name, content)})
        status = self._status(f"document {name}", created)
        if status != httpx.codes.CREATED:
            return f"{name} {status}"
        path = created.headers["location"]
        state = await self._ended(client, path)
        result = self._status(f"result {name}", await client.get(f"{path}/result"))
        self._status(f"delete {name}", await client.delete(path))
        return f"{name} {state} {result}"

    async def _ended(self, client: httpx.AsyncClient, path: str) -> str:
        end_seconds = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < end_seconds:
            job = (await client.get(path)).json()
            if job.get("status") in ("done", "failed"):
                if "internal" in str(job.get("error")):
                    self._found.problems[f"document: {job['error']}"] += 1
                return str(job["status"])
            await asyncio.sleep(POLL_SECONDS)
        self._found.problems[f"document: not ended in {ANSWER_SECONDS:g} s"] += 1
        return "not ended"

    async def _glossary(self, client: httpx.AsyncClient) -> int:
        entries_format = self._chance.choice(tuple(GLOSSARIES))
        entries = damage(GLOSSARIES[entries_format].encode(), self._chance).decode("latin-1")
        values = {"name": "a", "source_lang": "en", "target_lang": "de", "entries": entries}
        if self._chance.random() < 0.5:
            answer = await client.post("/v2/glossaries", data={**values, "entries_format": entries_format})
        else:
            pair = {"source_language": "en", "target_language": "de"}
            written = {"text": entries, "format": entries_format}
            answer = await client.post("/v1/glossaries", json={"name": "a", "dictionaries": [{**pair, **written}]})
        if answer.status_code == httpx.codes.CREATED:
            await client.delete(f"/v2/glossaries/{answer.json().get('glossary_id', answer.json().get('id'))}")
        return self._status("glossary", answer)

    def _status(self, what: str, answer: httpx.Response) -> int:
        if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR and answer.status_code not in ALLOWED:
            self._found.problems[f"{what}: {answer.status_code} {answer.text[:200]}"] += 1
        return answer.status_code


async def probe(ports: tuple[int, int], found: Found, end_seconds: float) -> None:
    """Asks over all interfaces, one request at a time, and keeps the longest time of each."""
    async with (
        httpx.AsyncClient(base_url=f"http://{HOST}:{ports[0]}", timeout=ANSWER_SECONDS, trust_env=False) as client,
        grpc.aio.insecure_channel(f"{HOST}:{ports[1]}") as channel,
    ):
        stub: Any = TranslationServiceStub(channel)

        async def rest() -> None:
            (await client.post("/v1/translate", json={"text": "A dog runs."})).raise_for_status()

        asks: dict[str, Callable[[], Awaitable[object]]] = {
            "rest": rest,
            "grpc": lambda: stub.Translate(TranslateRequest(text=["A dog runs."]), timeout=ANSWER_SECONDS),
            "metrics": lambda: client.get("/metrics"),
        }
        while time.monotonic() < end_seconds:
            for name, ask in asks.items():
                begun_seconds, outcome = time.monotonic(), "ok"
                try:
                    await ask()
                except (httpx.HTTPError, grpc.aio.AioRpcError) as error:
                    outcome = type(error).__name__
                    found.problems[f"probe {name}: {error!r:.200}"] += 1
                found.answer(f"probe {name}", outcome, time.monotonic() - begun_seconds)
            await asyncio.sleep(PROBE_SECONDS)


async def _attack(ports: tuple[int, int], found: Found, seconds: float, seed: int) -> None:
    end_seconds = time.monotonic() + seconds
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(probe(ports, found, end_seconds))
        for number in range(ATTACKERS):
            tasks.create_task(Attacker(ports[0], found, seed * ATTACKERS + number).run(end_seconds))


def fuzz(command: list[str], folder: Path, seconds: float, seed: int) -> Found:
    """Fuzzes a server of its own, which must end with status 0 after SIGTERM; returns what was seen."""
    found, log = Found(), folder / "log"
    with reserve_ports(0, 0) as (http_port, grpc_port):
        options = {"host": HOST, "http-port": http_port, "grpc-port": grpc_port, "state-dir": folder / "state"}
        flags = [f"--{name}={value}" for name, value in options.items()]
        with ServerProcess.run([*command, *flags], http_port, log) as server:
            server.wait_until_ready(READY_SECONDS)
            uvloop.run(_attack((http_port, grpc_port), found, seconds, seed))
    for line in ERROR.finditer(log.read_text("utf-8", "replace")):
        found.problems[f"log: {line[0]}"] += 1
    return found
