"""Call backs reach a real HTTPS server once, or again until it acknowledges them."""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from structlog.testing import capture_logs

from dragoman.serve import composition
from dragoman.serve.callbacks import sender as module
from dragoman.serve.callbacks.hosts import CallbackHosts
from dragoman.serve.callbacks.public_address import resolve_public
from dragoman.serve.callbacks.signature import read_secrets
from dragoman.serve.documents.job import Job, JobLimits, JobOptions
from dragoman.serve.documents.job_store import CLAIM_SECONDS, JobStore, Progress
from dragoman.serve.host.files import FileError
from dragoman.serve.host.state import State
from tests.support.certificates import Authority
from tests.support.fakes import FakeClock
from tests.support.live import eventually, run_service
from tests.support.paths import ROOT

pytestmark = pytest.mark.anyio
LIMITS = JobLimits(document_bytes=100, unpacked_bytes=100, jobs=50, store_bytes=10_000, keep_seconds=1e6)
OLD, NEW = "whsec_" + "b2xk" * 8, "whsec_" + "bmV3" * 8


def status(code: int) -> list[bytes]:
    return [f"HTTP/1.1 {code} X\r\ncontent-length: 0\r\nlocation: /other\r\n\r\n".encode()]


@dataclass
class Bench:
    """A receiver of call backs that records them, and answers by path: parts, or none for a minute; else with 204."""

    folder: Path
    port: int = 0
    clock: FakeClock = field(default_factory=lambda: FakeClock(time.time()))
    answers: dict[str, list[list[bytes]]] = field(default_factory=dict)
    received: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    results: list[str] = field(default_factory=list)

    async def receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.CancelledError):
            request, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
            path, headers = request.split(" ")[1], dict(line.split(": ", 1) for line in lines)
            self.received.append((path, headers, await reader.readexactly(int(headers["content-length"]))))
            answer = self.answers[path].pop(0) if self.answers[path] else status(204)
            for part in answer:
                writer.write(part)
                await writer.drain()
            await asyncio.sleep(0 if answer else 60)
        writer.close()

    def open(self) -> JobStore:
        return JobStore(State(self.folder), LIMITS, self.clock)

    def end(self, path: str, host: str = "a.hooks.test", answers: Sequence[list[bytes]] = ()) -> Job:
        """Adds a document with a call back, and ends its translation."""
        self.answers[path] = list(answers)
        store, url = self.open(), f"https://{host}:{self.port}{path}"
        job = store.add("secret.txt", b"text", "en", "de", JobOptions(), callback=url)
        claim = store.claim()
        assert claim is not None
        assert store.fail(claim, "secret") if host == "failed.hooks.test" else store.finish(claim, Progress(), b"Text")
        return job

    @asynccontextmanager
    async def sending(self, host: str = "*.hooks.test", resolve: Any = None) -> AsyncIterator[None]:
        """Runs a sender, as a process does."""
        resolve = resolve or AsyncMock(return_value="127.0.0.1")
        hosts, secrets = CallbackHosts([f"{host}:{self.port}"]), read_secrets(self.folder / "secrets")
        sender = module.CallbackSender(self.open(), hosts, secrets, self.results.append, resolve)
        task = asyncio.create_task(sender.run())
        yield
        task.cancel()
        await asyncio.wait([task])

    async def wait(self, *results: str, calls: int = 0) -> None:
        async with asyncio.timeout(30):
            while len(self.results) < len(results) or len(self.received) < calls:  # noqa: ASYNC110 - in a thread
                await asyncio.sleep(0.01)
        assert sorted(self.results) == sorted(results)


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    authority, bench = Authority(tmp_path), Bench(tmp_path)
    files = authority.issue("server", "*.hooks.test", "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    (tmp_path / "secrets").write_text(f"{NEW}\n{OLD}\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files["certificate"], files["key"])
    server = await asyncio.start_server(bench.receive, "127.0.0.1", 0, ssl=context)
    bench.port = server.sockets[0].getsockname()[1]
    yield bench
    server.close()


@pytest.mark.parametrize("status", ["done", "failed"])
async def test_a_call_back_has_id_status_and_a_signature_that_the_example_verifies(bench: Bench, status: str) -> None:
    job = bench.end("/done?token=1", f"{status}.hooks.test")
    async with bench.sending():
        await bench.wait("delivered")
    ((path, headers, body),) = bench.received
    assert (path, headers["host"]) == ("/done?token=1", f"{status}.hooks.test:{bench.port}")
    sent_seconds = int(headers["webhook-timestamp"])
    assert json.loads(body) == {"id": job.id, "status": status, "time_seconds": sent_seconds}
    page, scope = (ROOT / "docs/documents.md").read_text("utf-8"), dict[str, Any]()
    exec("if True:" + page.partition("function verifies a call:")[2].partition("\n- ")[0], scope)  # noqa: S102 - the example
    for secret in (OLD, NEW):
        assert scope["verify"](headers, body, secret) == job.id
    for name, wrong, problem in ("timestamp", str(sent_seconds - 301), "five minutes"), ("id", "x", "secret"):
        with pytest.raises(ValueError, match=problem):
            scope["verify"]({**headers, f"webhook-{name}": wrong}, body, NEW)


FAILURES = {"status 500": status(500), "status 404": status(404), "status 302": status(302), "TimeoutError": []}
FAILURES |= {"BadStatusLine": [b"200 OK\r\n\r\n"], "IncompleteReadError": [b"HTTP/1.1 20"]}
FAILURES |= {"LimitOverrunError": [b"x" * 65536] * 9999}


@pytest.mark.parametrize(("reason", "answer"), FAILURES.items())
async def test_a_failed_call_is_logged_with_its_reason_and_repeated_until_it_is_acknowledged(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, reason: str, answer: list[bytes]
) -> None:
    monkeypatch.setattr(module, "CALL_SECONDS", 2.0)
    job = bench.end("/a", answers=[answer])
    with capture_logs() as logs:
        async with bench.sending():
            await bench.wait("failed")
            bench.clock.seconds += 1.2 * module.RETRY_SECONDS[0]
            await bench.wait("failed", "delivered")
    assert [log["reason"] for log in logs if log["event"] == "callback"] == [reason, "status 204"]
    assert [(path, headers["webhook-id"]) for path, headers, _ in bench.received] == [("/a", job.id)] * 2


async def test_a_retry_waits_and_the_last_one_abandons_the_call_back(bench: Bench) -> None:
    bench.end("/a", answers=[status(404)] * 9)
    async with bench.sending():
        for attempt, seconds in enumerate(module.RETRY_SECONDS, start=1):
            await bench.wait(*["failed"] * attempt)
            bench.clock.seconds += 0.79 * seconds
            await asyncio.sleep(0.05)
            assert len(bench.results) == attempt
            bench.clock.seconds += 0.42 * seconds
        await bench.wait(*["failed"] * len(module.RETRY_SECONDS), "abandoned")
    bench.clock.seconds += 1e5
    assert bench.open().claim_callback(()) is None


@pytest.mark.parametrize(
    ("host", "listed"), [("localhost", "localhost"), ("a.hooks.test", "b.test"), ("b.test", "b.test")]
)
async def test_no_local_address_unlisted_host_or_certificate_of_another_name_gets_a_call(
    bench: Bench, host: str, listed: str
) -> None:
    bench.end("/a", host)
    async with bench.sending(listed, resolve_public if host == "localhost" else None):
        await bench.wait("failed" if host == "b.test" else "refused")
    bench.clock.seconds += 1e5
    assert (bench.open().claim_callback(()) is None, bench.received) == (host != "b.test", [])


async def test_a_restart_repeats_only_what_was_not_acknowledged(bench: Bench) -> None:
    bench.end("/a")
    bench.end("/b", "b.hooks.test", [[]])
    async with bench.sending():
        await bench.wait("delivered", calls=2)
    bench.clock.seconds += CLAIM_SECONDS
    async with bench.sending():
        await bench.wait("delivered", "delivered")
    assert sorted(path for path, _, _ in bench.received) == ["/a", "/b", "/b"]


async def test_several_processes_send_each_call_back_once(bench: Bench) -> None:
    jobs = [bench.end("/a", f"{number % 3}.hooks.test").id for number in range(12)]
    async with bench.sending(), bench.sending():
        await bench.wait(*["delivered"] * len(jobs))
        await asyncio.sleep(0.05)
    assert sorted(headers["webhook-id"] for _, headers, _ in bench.received) == sorted(jobs)


async def test_a_host_that_fails_repeatedly_is_paused_and_delays_no_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = ["failed"] * module.PAUSE_FAILURES
    for number in range(len(failed) + 1):
        bench.end(f"/{number}", "bad.hooks.test", [status(503)])
    async with bench.sending():
        await bench.wait(*failed)
        bench.end("/good")
        await bench.wait(*failed, "delivered")
        monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
        await bench.wait(*failed, "delivered", "failed")


async def test_a_failure_of_the_database_delays_call_backs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.end("/a")
    claims = Mock(side_effect=[ZeroDivisionError, bench.open().claim_callback(()), *[None] * 9999])
    monkeypatch.setattr(JobStore, "claim_callback", claims)
    async with bench.sending():
        await bench.wait("delivered")


async def test_a_service_calls_back_when_the_result_can_be_read(
    bench: Bench, bundle_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = partial(module.CallbackSender, resolve=AsyncMock(return_value="127.0.0.1"))
    monkeypatch.setattr(composition, "CallbackSender", resolved)
    bench.answers["/a"] = []
    host, secret = f"a.hooks.test:{bench.port}", bench.folder / "secrets"
    query = {"source_language": "en", "target_language": "de", "name": "a.txt", "callback": f"https://{host}/a"}

    def translate() -> str:
        settings: dict[str, Any] = {"callback_hosts": [host], "callback_secret_file": secret}
        with run_service(bundle_path, state_dir=bench.folder, **settings) as live:
            job_id = str(live.post(path="/v1/documents", content=b"alpha.", params=query).json()["id"])
            eventually(lambda: live.metric("callbacks_total", result="delivered") == 1)
            assert live.get(f"/v1/documents/{job_id}/result").status_code == 200
        return job_id

    job_id = await asyncio.to_thread(translate)
    assert [(json.loads(body)["id"], json.loads(body)["status"]) for _, _, body in bench.received] == [(job_id, "done")]


@pytest.mark.parametrize("content", ["", "secret", NEW[:-4], f"{NEW}\n{NEW[:-1]}", f"{NEW} # old"])
async def test_a_wrong_file_of_secrets_is_refused_without_showing_them(tmp_path: Path, content: str) -> None:
    (tmp_path / "file").write_text(content)
    with pytest.raises(
        FileError, match=r"^--callback-secret-file: \S+: expected lines of whsec_ and the base64 of 24 bytes or more$"
    ):
        read_secrets(tmp_path / "file")
