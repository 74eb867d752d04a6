"""Measures what hostile files cost other clients: `python -m tests.support.attacks.parser_findings BUNDLE --tree TREE`.

Each file goes to a server of its own, of the tree of `--tree`, so that versions can be compared. Next to it, clients
translate over REST and gRPC and read the metrics. A row has the longest time that one of them waited, the peak of the
memory of all processes of the service above that before, and how the file was answered.
"""

import argparse
import asyncio
import io
import os
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc.aio
import httpx
import uvloop

from dragoman.serve.host.server_process import HOST, ServerProcess, reserve_ports, server_command
from tests.support.attacks.fuzz_service import Ask, open_clients
from tests.support.processes import children

READY_SECONDS = 60.0
ANSWER_SECONDS = 60.0
PAUSE_SECONDS = 0.01
MEBIBYTE = 1 << 20
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PAIR = {"source_language": "en", "target_language": "de"}
MAIN = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def _word() -> bytes:
    run = f'<w:r><w:rPr><w:rStyle w:val="{"s" * 100_000}"/></w:rPr>{"<w:t>a</w:t><w:tab/>" * 10_000}</w:r>'
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(
            "[Content_Types].xml", f'<Types><Override PartName="/word/document.xml" ContentType="{MAIN}"/></Types>'
        )
        body = f'<w:document xmlns:w="{WORD}"><w:body><w:p>{run}</w:p></w:body></w:document>'
        file.writestr("word/document.xml", body)
    return stream.getvalue()


def _tbx() -> str:
    sections = (
        f'<langSet xml:lang="{language}">'
        + "".join(f"<tig><term>{language}{number}</term></tig>" for number in range(8_000))
        + "</langSet>"
        for language in ("en", "de")
    )
    return f"<tbx><text><body><termEntry>{''.join(sections)}</termEntry></body></text></tbx>"


DOCUMENTS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "subtitle of 60,000 digits": ("a.srt", lambda: b"1\n00:00:01,000 --> 00:00:02," + b"1" * 60_000),
    "YAML of 2.4 MB of %TAG": (
        "a.yaml",
        lambda: b"".join(b"%%TAG !%d! tag:x:\n" % number for number in range(120_000)) + b"---\na: A dog.\n",
    ),
    "Word file of a kilobyte": ("a.docx", _word),
    "PO with one text of 10 MB": ("a.po", lambda: b'msgid "' + b"a dog " * 1_700_000 + b'"\nmsgstr ""\n'),
    "HTML of 10 MB of &amp": ("a.html", lambda: b"<p>" + b"&amp" * 2_500_000),
}
GLOSSARIES: dict[str, Callable[[], tuple[str, dict[str, Any]]]] = {
    "TBX, terms times translations": lambda: (
        "/v1/glossaries",
        {"json": {"name": "a", "dictionaries": [{**PAIR, "text": _tbx(), "format": "tbx"}]}},
    ),
    "glossary of 8 MB for DeepL": lambda: (
        "/v2/glossaries",
        {
            "data": {
                "name": "a",
                "source_lang": "en",
                "target_lang": "de",
                "entries": "".join(f"{number:070}\tBegriff\n" for number in range(99_000)),
                "entries_format": "tsv",
            }
        },
    ),
}


@dataclass
class Others:
    """What the other clients saw: the longest wait of each kind in seconds, and failures."""

    longest_seconds: dict[str, float] = field(default_factory=dict)
    failures: int = 0

    async def repeat(self, name: str, ask: Ask, ended: asyncio.Event) -> None:
        """Asks again and again until the attack has ended."""
        while not ended.is_set():
            begun_seconds = time.monotonic()
            try:
                await ask()
            except (httpx.HTTPError, grpc.aio.AioRpcError):
                self.failures += 1
            self.longest_seconds[name] = max(self.longest_seconds.get(name, 0.0), time.monotonic() - begun_seconds)
            await asyncio.sleep(PAUSE_SECONDS)


def memory_bytes(process_id: int) -> int:
    """Returns the resident memory of a process and of all that it has started; shared pages count in each."""
    try:
        pages = int(Path(f"/proc/{process_id}/statm").read_text("ascii").split()[1])
        return pages * PAGE_BYTES + sum(map(memory_bytes, children(process_id)))
    except (FileNotFoundError, ProcessLookupError):
        return 0


async def attack(ports: tuple[int, int], process_id: int, name: str) -> dict[str, str]:
    """Sends one hostile file next to other clients and returns the row of the table."""
    others, ended = Others(), asyncio.Event()
    async with open_clients(ports, ANSWER_SECONDS) as asks, asyncio.TaskGroup() as tasks:
        for ask in asks.values():
            await ask()
        before_bytes = peak_bytes = memory_bytes(process_id)
        for kind, ask in asks.items():
            tasks.create_task(others.repeat(kind, ask, ended))
        sending = asyncio.create_task(asyncio.to_thread(send, f"http://{HOST}:{ports[0]}", name))
        begun_seconds = time.monotonic()
        while not sending.done():
            peak_bytes = max(peak_bytes, await asyncio.to_thread(memory_bytes, process_id))
            await asyncio.sleep(PAUSE_SECONDS)
        ended.set()
    return {
        "file": name,
        "answer": sending.result(),
        "seconds": f"{time.monotonic() - begun_seconds:.1f}",
        "longest wait of others, s": f"{max(others.longest_seconds.values()):.2f}",
        "failures of others": str(others.failures),
        "more memory, MiB": f"{(peak_bytes - before_bytes) / MEBIBYTE:.0f}",
    }


def send(url: str, name: str) -> str:
    """Sends a hostile file and returns how it ended, at the latest after ANSWER_SECONDS."""
    with httpx.Client(base_url=url, timeout=ANSWER_SECONDS, trust_env=False) as client:
        try:
            if name in GLOSSARIES:
                path, body = GLOSSARIES[name]()
                return str(client.post(path, **body).status_code)
            file, content = DOCUMENTS[name]
            created = client.post("/v1/documents", data=PAIR, files={"file": (file, content())})
            if created.status_code != httpx.codes.CREATED:
                return str(created.status_code)
            end_seconds = time.monotonic() + ANSWER_SECONDS
            while time.monotonic() < end_seconds:
                job = client.get(created.headers["location"]).json()
                if job["status"] in ("done", "failed"):
                    return f"{job['status']} {job.get('error') or ''}".strip()
                time.sleep(0.05)
        except httpx.HTTPError as error:
            return type(error).__name__
    return f"not ended after {ANSWER_SECONDS:g} s"


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--tree", type=Path, default=Path.cwd())
    parser.add_argument("--only", default="", help="part of the names of the files")
    arguments = parser.parse_args()
    environment = {**os.environ, "PYTHONPATH": str(arguments.tree.resolve()), "PYTHONSAFEPATH": "1"}
    for number, name in enumerate(name for name in (*DOCUMENTS, *GLOSSARIES) if arguments.only in name):
        with TemporaryDirectory() as folder, reserve_ports(0, 0) as ports:
            command = [*server_command(arguments.bundle.resolve(), ports[0], ports[1]), f"--state-dir={folder}/state"]
            server = ServerProcess(command, ports[0], Path(folder) / "log", environment)
            server.start()
            try:
                server.wait_until_ready(READY_SECONDS)
                row = uvloop.run(attack((ports[0], ports[1]), server.process_id, name))
            finally:
                with suppress(ProcessLookupError):
                    server.kill()
        if not number:
            print(f"| {' | '.join(row)} |\n|{' --- |' * len(row)}")
        print(f"| {' | '.join(row.values())} |", flush=True)


if __name__ == "__main__":
    _main()
