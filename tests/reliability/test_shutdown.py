"""Signals at rare moments: while a model loads, warms up or hangs, and with idle clients.

The promise is 5 s; the tests measure the time, and wait longer on a busy machine.
"""

import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest

from tests.support.fake_bundles import LONG_TEXT
from tests.support.live import WAIT_SECONDS, eventually
from tests.support.paths import ROOT
from tests.support.processes import read_log, start_process
from tests.support.promises import Measured

LONG = {"text": LONG_TEXT}


@pytest.mark.promise("R26")
@pytest.mark.parametrize("kind", ["loading", "warming"])
def test_a_signal_ends_a_server_that_loads_or_warms_up(bundle_path: Path, kind: str, measured: Measured) -> None:
    """Holds for a bundle that takes minutes to load and for a model that never returns. No client waits meanwhile."""
    with start_process(bundle_path, kind, "--lame-duck-seconds", "1000") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "stands still\n"
        sent_seconds = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=WAIT_SECONDS)
        measured("R26", f"{kind}: gone after {time.monotonic() - sent_seconds:.1f} s")
    assert process.returncode == 0, log
    assert '"event": "stopped"' in log


# The command line, and a server whose import never ends.
IMPORTS = """
import sys
import threading
from dragoman import command_line

class Finder:
    def find_spec(self, name, *arguments):
        if name == "dragoman.serve.app":
            print("imports", flush=True)
            threading.Event().wait()

sys.meta_path.insert(0, Finder())
command_line.run("serve", ["bundles/multi30k"])
"""


@pytest.mark.promise("R26")
def test_a_signal_ends_a_server_during_its_import() -> None:
    with subprocess.Popen([sys.executable, "-c", IMPORTS], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "imports\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0


@pytest.mark.promise("R26")
def test_a_signal_ends_a_server_whose_clients_keep_idle_connections(bundle_path: Path, measured: Measured) -> None:
    with start_process(bundle_path) as process:
        ready = read_log(process)
        with closing(HTTPConnection("127.0.0.1", ready["http_port"], timeout=WAIT_SECONDS)) as connection:
            connection.request("POST", "/v1/translate", json.dumps(LONG), {"content-type": "application/json"})
            assert connection.getresponse().read()
            sent_seconds = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_SECONDS) == 0
            measured("R26", f"idle connection: gone after {time.monotonic() - sent_seconds:.1f} s")


@pytest.mark.promise("R25")
def test_a_signal_ends_a_server_whose_model_hangs(bundle_path: Path, measured: Measured) -> None:
    with (
        start_process(bundle_path, "shut", "--drain-seconds", "0") as process,
        ThreadPoolExecutor() as pool,
        httpx.Client(
            base_url=f"http://127.0.0.1:{read_log(process)['http_port']}", trust_env=False, timeout=WAIT_SECONDS
        ) as client,
    ):
        stuck = pool.submit(client.post, "/v1/translate", json=LONG)
        eventually(lambda: 'sequences_running{model="fake"} 1.0' in client.get("/metrics").text)
        sent_seconds = time.monotonic()
        process.send_signal(signal.SIGTERM)
        answer = stuck.result(WAIT_SECONDS)
        _, log = process.communicate(timeout=WAIT_SECONDS)
        measured("R25", f"model that hangs: gone after {time.monotonic() - sent_seconds:.1f} s")
    assert (answer.status_code, answer.json()["reason"]) == (503, "draining")
    assert process.returncode == 0
    assert '"event": "engine_hangs"' in log
    assert '"event": "stopped"' in log
