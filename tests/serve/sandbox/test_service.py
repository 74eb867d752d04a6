"""A service whose parsers compute without end, cannot start, or are left behind."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from dragoman.serve.documents import reader as documents
from dragoman.serve.edge import parameters
from dragoman.serve.glossaries import reader as glossaries
from dragoman.serve.sandbox import host, worker
from tests.support.live import LiveService, eventually, run_service
from tests.support.paths import ROOT
from tests.support.processes import children
from tests.support.sandboxes import add_parsers, is_running, template_of
from tests.support.served import Server, serve

PAIR = {"source_language": "en", "target_language": "de"}
GLOSSARY = {"name": "a", "dictionaries": [{**PAIR, "text": "house\tHaus"}]}
FORM_BYTES = 70_000


@pytest.fixture
def live(bundle_path: Path, tmp_path: Path) -> Iterator[LiveService]:
    with run_service(bundle_path, state_dir=tmp_path, request_timeout_seconds=600.0) as service:
        yield service


def send_document(live: LiveService) -> httpx.Response:
    return live.post(path="/v1/documents", content=b"alpha beta.", params={"name": "a.txt", **PAIR})


def send_form(live: LiveService) -> httpx.Response:
    return live.post(path="/translate", data={"q": "a" * FORM_BYTES, "source": "en", "target": "de"})


def send_glossary(live: LiveService) -> httpx.Response:
    return live.post(GLOSSARY, path="/v1/glossaries")


def send_deepl_glossary(live: LiveService) -> httpx.Response:
    body = {"name": "a", "source_lang": "en", "target_lang": "de", "entries": "a\tb", "entries_format": "tsv"}
    return live.post(body, path="/v2/glossaries")


SENDERS = (send_form, send_glossary, send_deepl_glossary)


def status_of(live: LiveService, document: httpx.Response) -> str:
    assert document.status_code == 201, document.text
    status: str = live.get(document.headers["location"]).json()["status"]
    return status


def test_others_are_answered_while_parsers_compute(live: LiveService, monkeypatch: pytest.MonkeyPatch) -> None:
    add_parsers(monkeypatch, "tests.support.endless_parsers")
    document = send_document(live)
    with ThreadPoolExecutor(len(SENDERS)) as pool:
        sent: list[Future[httpx.Response]] = [pool.submit(send, live) for send in SENDERS]
        template = template_of(live.service.core.sandbox)
        eventually(lambda: len(children(template)) >= 3)  # a document, a glossary, a form
        assert live.post({"text": "alpha beta."}).status_code == 200
        for path in ("/metrics", "/healthz", "/v1/models", "/v1/glossaries", "/"):
            assert live.get(path).status_code == 200
        assert status_of(live, document) == "translating"
        assert not any(item.done() for item in sent)
        live.loop.call_soon_threadsafe(live.service.core.sandbox.close)
        assert [item.result().status_code for item in sent] == [503] * len(SENDERS)


def _template(processes: list[int]) -> int:
    found = [pid for pid in processes if b"dragoman.serve.sandbox" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(found) == 1
    return found[0]


def test_a_request_or_document_beyond_a_limit_is_refused_with_the_limit(
    live: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_parsers(monkeypatch, "tests.support.endless_parsers")
    monkeypatch.setattr(worker, "WALL_SECONDS_PER_CPU_SECOND", 600.0)
    for module in (parameters, glossaries, documents):
        monkeypatch.setattr(module, "_BASE_SECONDS", 0)
    for send in (send_form, send_glossary):
        answer = send(live)
        assert answer.status_code == 413
        assert "1 s of CPU time" in answer.text
    document = send_document(live)
    eventually(lambda: status_of(live, document) == "failed")
    assert "1 s of CPU time" in live.get(document.headers["location"]).json()["error"]


def test_a_deleted_document_ends_its_parser(live: LiveService, monkeypatch: pytest.MonkeyPatch) -> None:
    add_parsers(monkeypatch, "tests.support.endless_parsers")
    document = send_document(live)
    eventually(lambda: status_of(live, document) == "translating")
    template = template_of(live.service.core.sandbox)
    eventually(lambda: len(children(template)) == 1)
    (parser,) = children(template)
    with live.http() as client:
        assert client.delete(document.headers["location"]).status_code == 204
    eventually(lambda: not is_running(parser))


@pytest.mark.parametrize("send", [send_document, *SENDERS])
def test_without_processes_requests_are_answered_with_503_and_the_reason(
    live: LiveService, monkeypatch: pytest.MonkeyPatch, send: Callable[[LiveService], httpx.Response]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(host, "_OPTIONS", ("-c", "raise SystemExit(7)"))
        answer = send(live)
        assert answer.status_code == 503
        assert "status 7" in answer.text
    assert send(live).status_code != 503


@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_server_leaves_no_parser(tmp_path: Path, processes: int) -> None:
    bundle = ROOT / "bundles" / "multi30k-en-de"
    with serve(bundle, "--state-dir", str(tmp_path), "--processes", str(processes)) as server:
        for _ in range(4):  # over connections that several processes accept
            assert _store_glossary(server) == 201
        template = _template(children(server.process.pid))
        eventually(lambda: len(children(template)) == 1)
        found = [template, *children(template)]
        server.process.kill()
        eventually(lambda: not any(map(is_running, found)))


def _store_glossary(server: Server) -> int:
    status, _ = server.post(GLOSSARY, "/v1/glossaries")
    return status


def test_the_threads_of_documents_are_not_those_of_metrics(live: LiveService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of the store that wait for a database occupy no thread that others need."""
    entered, leave = threading.Semaphore(0), threading.Event()

    def wait(*_: object) -> None:
        entered.release()
        assert leave.wait(60)

    assert live.service._documents is not None
    monkeypatch.setattr(live.service._documents.jobs.store, "find", wait)
    with ThreadPoolExecutor(40) as pool:
        waiting = [pool.submit(live.get, f"/v1/documents/{number:032x}") for number in range(40)]
        assert entered.acquire(timeout=60)
        try:
            assert live.get("/metrics").status_code == 200
        finally:
            leave.set()
        assert {item.result().status_code for item in waiting} == {500}
