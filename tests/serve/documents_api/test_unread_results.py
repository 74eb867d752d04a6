"""Translated documents that clients do not read: they take the memory of a piece each."""

import socket
import time
import tracemalloc
from contextlib import ExitStack
from pathlib import Path

from dragoman.serve.documents.job import Job, JobLimits, JobOptions
from dragoman.serve.documents.job_store import JobStore, Progress
from dragoman.serve.documents_api.result import PIECE_BYTES
from dragoman.serve.host.state import State
from tests.support.live import run_service
from tests.support.raw_http import SMALL_BUFFER_BYTES, connect_to, head

RESULT = bytes(range(256)) * (8 << 12)  # 8 MiB
CLIENTS = 20


def store_result(state_dir: Path) -> Job:
    """Stores a document that was translated ten seconds ago: DeepL's interface shows no sooner one as done."""
    state = State(state_dir)
    store = JobStore(state, JobLimits(len(RESULT), len(RESULT), 10, 1 << 30, 1000.0), lambda: time.time() - 10.0)
    job = store.add("a.txt", b"text", "en", "de", JobOptions())
    claim = store.claim()
    assert claim is not None
    store.finish(claim, Progress(1, 1, 4), RESULT)
    state.close()
    return job


def test_results_that_no_client_reads_take_little_memory(bundle_path: Path, tmp_path: Path) -> None:
    job = store_result(tmp_path)
    with run_service(bundle_path, state_dir=tmp_path) as live, ExitStack() as stack:
        connect = connect_to(stack, live)
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        clients = [connect(SMALL_BUFFER_BYTES) for _ in range(CLIENTS)]
        for client in clients:
            client.send(head("GET", f"/v1/documents/{job.id}/result"))
        for client in clients:
            assert client.socket.recv(1, socket.MSG_PEEK)
        for client in clients[:2]:
            assert client.answer().body == RESULT
        assert tracemalloc.get_traced_memory()[1] < 4 * len(RESULT) + CLIENTS * 4 * PIECE_BYTES


def test_a_result_of_deepl_is_complete_although_it_is_deleted_at_once(bundle_path: Path, tmp_path: Path) -> None:
    job = store_result(tmp_path)
    with run_service(bundle_path, state_dir=tmp_path) as live:
        assert live.post(path=f"/v2/document/{job.id}/result", data={"document_key": job.key}).content == RESULT
        assert live.get(f"/v1/documents/{job.id}").status_code == 404
