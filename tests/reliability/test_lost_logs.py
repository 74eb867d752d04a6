"""Without a working log, a server serves, follows its key file, and ends as usual."""

import fcntl
import json
import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from dragoman.serve.host.server_process import HOST, is_ready, reserve_ports
from tests.support.fake_bundles import LONG_TEXT
from tests.support.live import WAIT_SECONDS, eventually
from tests.support.processes import start_process

PIPE_BYTES = 4096
MORE_THAN_A_PIPE_HOLDS = 60
CLOSE_STREAMS = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")


@contextmanager
def served(
    bundle_path: Path, stderr: int, *given: str, launcher: Sequence[str] = ()
) -> Iterator[tuple[httpx.Client, subprocess.Popen[str]]]:
    """Yields a client and the process of a ready server; `stderr` is its standard error."""
    with (
        reserve_ports(0) as (port,),
        start_process(bundle_path, "open", *given, f"--http-port={port}", stderr=stderr, launcher=launcher) as process,
        httpx.Client(base_url=f"http://{HOST}:{port}", timeout=WAIT_SECONDS) as client,
    ):
        eventually(lambda: is_ready(port))
        yield client, process


def ends_well(process: subprocess.Popen[str]) -> bool:
    """Stops a server by its signal; returns whether its exit status is 0."""
    process.send_signal(signal.SIGTERM)
    return process.wait(WAIT_SECONDS) == 0


@contextmanager
def lost_reader() -> Iterator[int]:
    """Yields the writing end of a pipe without a reader."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@contextmanager
def full_disk() -> Iterator[int]:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        yield full.fileno()


def log_errors(client: httpx.Client) -> float:
    metrics = client.get("/metrics").text
    return next(float(line.split()[1]) for line in metrics.splitlines() if line.startswith("dragoman_log_errors_total"))


@pytest.mark.parametrize("place", [lost_reader, full_disk])
def test_a_lost_log_changes_no_status_and_keys_are_followed(bundle_path: Path, tmp_path: Path, place: Any) -> None:
    keys = tmp_path / "keys"
    keys.write_text("first\n")
    with place() as stderr, served(bundle_path, stderr, "--api-keys-file", str(keys)) as (client, process):

        def status(key: str, text: str = "a b") -> int:
            headers = {"authorization": f"Bearer {key}"}
            return client.post("/v1/translate", json={"text": text}, headers=headers).status_code

        def accepts(key: str) -> bool:
            return status(key) == 200

        assert [status("first"), status("wrong"), status("first", "")] == [200, 401, 400]
        for old, new in (("first", "second"), ("second", "third")):
            keys.write_text(f"{new}\n")
            eventually(partial(accepts, new))
            assert status(old) == 401
        eventually(lambda: log_errors(client) > 0)
        assert ends_well(process)


def test_an_accepted_request_is_answered_after_the_signal_although_the_log_is_lost(bundle_path: Path) -> None:
    with lost_reader() as stderr, served(bundle_path, stderr, "--drain-seconds", "30") as (client, process):
        # Its body is long enough that the signal comes while it is translated.
        with ThreadPoolExecutor() as pool:
            answer = pool.submit(client.post, "/v1/translate", json={"text": [LONG_TEXT] * 8})
            eventually(lambda: "dragoman_inflight_requests 1.0" in client.get("/metrics").text or answer.done())
            process.send_signal(signal.SIGTERM)
            assert answer.result().status_code == 200
        assert process.wait(WAIT_SECONDS) == 0


@contextmanager
def small_pipe() -> Iterator[tuple[int, int]]:
    """Yields both ends of a pipe; the reading one stays open."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    yield reading, writing
    os.close(reading)


def test_a_pipe_that_nobody_reads_stops_nothing(bundle_path: Path) -> None:
    with small_pipe() as (_, writing), served(bundle_path, writing) as (client, process):
        os.close(writing)
        found = {client.post("/v1/translate", json={"text": "a b"}).status_code for _ in range(MORE_THAN_A_PIPE_HOLDS)}
        assert found == {200}
        assert client.get("/healthz").status_code == 200
        assert ends_well(process)


def test_a_server_without_standard_streams_serves_and_ends(bundle_path: Path) -> None:
    with served(bundle_path, subprocess.DEVNULL, launcher=CLOSE_STREAMS) as (client, process):
        assert client.post("/v1/translate", json={"text": "a b"}).status_code == 200
        assert ends_well(process)


def test_a_log_that_is_read_again_has_all_lines(bundle_path: Path) -> None:
    with small_pipe() as (reading, writing), served(bundle_path, writing) as (client, process):
        os.close(writing)
        for _ in range(MORE_THAN_A_PIPE_HOLDS):
            client.post("/v1/translate", json={"text": "a b"})
        received: list[bytes] = []
        reader = threading.Thread(target=lambda: received.extend(iter(lambda: os.read(reading, 1 << 16), b"")))
        reader.start()
        assert ends_well(process)
        reader.join()
    events = Counter(json.loads(line)["event"] for line in b"".join(received).splitlines())
    assert events["request"] == MORE_THAN_A_PIPE_HOLDS
    assert events["stopped"] == 1
