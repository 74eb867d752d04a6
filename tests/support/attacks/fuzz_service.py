"""Damages bodies, documents and glossaries for a running server.

A problem is an answer with a 5xx status that is not allowed, no answer, or a document that fails inside of the server.
"""

import asyncio
import random
import time
import zipfile
from collections import Counter
from io import BytesIO

import httpx

from tests.support.attacks.fuzz_inputs import BODIES, DOCUMENTS, GLOSSARIES, body, document

ATTACKERS = 4
ANSWER_SECONDS = 30.0
POLL_SECONDS = 0.05
REPEATS = 5_000
TOKENS = b'\0 \xa1 &# < { [ " 9 % \n &amp; \xef\xbf\xbf %d {n} * - : # @ 00:'.split(b" ")
# Clients may try again.
ALLOWED = (429, 503)
JSON = {"content-type": "application/json"}


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

    def __init__(self, problems: Counter[str], seed: int) -> None:
        self._problems = problems
        self._chance = random.Random(seed)

    async def run(self, url: str, end_seconds: float) -> None:
        kinds = (self._rest, self._document, self._document, self._glossary)
        async with httpx.AsyncClient(base_url=url, timeout=ANSWER_SECONDS, trust_env=False) as client:
            while time.monotonic() < end_seconds:
                kind = self._chance.choice(kinds)
                try:
                    await kind(client)
                except httpx.TimeoutException:
                    self._problems[f"{kind.__name__.strip('_')}: no answer"] += 1
                except httpx.HTTPError:
                    continue

    async def _rest(self, client: httpx.AsyncClient) -> None:
        path = self._chance.choice(tuple(BODIES))
        self._check(path, await client.post(path, content=damage(body(path), self._chance), headers=JSON))

    async def _document(self, client: httpx.AsyncClient) -> None:
        name = self._chance.choice(tuple(DOCUMENTS))
        content = document(name)
        packed = content.startswith(b"PK") and self._chance.random() < 0.8
        content = (damage_package if packed else damage)(content, self._chance)
        fields = {"source_language": "en", "target_language": "de"}
        created = await client.post("/v1/documents", data=fields, files={"file": (name, content)})
        self._check(f"document {name}", created)
        if created.status_code == httpx.codes.CREATED:
            path = created.headers["location"]
            await self._wait(client, path)
            self._check(f"result {name}", await client.get(f"{path}/result"))
            self._check(f"delete {name}", await client.delete(path))

    async def _wait(self, client: httpx.AsyncClient, path: str) -> None:
        end_seconds = time.monotonic() + ANSWER_SECONDS
        while (job := (await client.get(path)).json()).get("status") not in ("done", "failed"):
            if time.monotonic() > end_seconds:
                self._problems[f"document: not ended in {ANSWER_SECONDS:g} s"] += 1
                return
            await asyncio.sleep(POLL_SECONDS)
        if "internal" in str(job.get("error")):
            self._problems[f"document: {job['error']}"] += 1

    async def _glossary(self, client: httpx.AsyncClient) -> None:
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
        self._check("glossary", answer)

    def _check(self, what: str, answer: httpx.Response) -> None:
        if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR and answer.status_code not in ALLOWED:
            self._problems[f"{what}: {answer.status_code} {answer.text[:200]}"] += 1


async def fuzz(url: str, seconds: float, seed: int) -> Counter[str]:
    """Sends damaged requests to a server; returns the problems that were seen."""
    problems, end_seconds = Counter[str](), time.monotonic() + seconds
    async with asyncio.TaskGroup() as tasks:
        for number in range(ATTACKERS):
            tasks.create_task(Attacker(problems, seed * ATTACKERS + number).run(url, end_seconds))
    return problems
