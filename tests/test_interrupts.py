"""Ctrl-C ends commands that start processes without a traceback, also while these start."""

import os
import signal
import sys
import time
from pathlib import Path
from subprocess import PIPE, Popen

DEADLINE_SECONDS = 120


def wait_for_child(process: Popen[str], mark: str) -> None:
    """Waits until a child of a process has a text in its arguments or in the names of its libraries."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline_seconds = time.monotonic() + DEADLINE_SECONDS
    while not any(
        mark in Path(f"/proc/{child}/{file}").read_text(encoding="utf-8")
        for child in children.read_text(encoding="ascii").split()
        for file in ("cmdline", "maps")
    ):
        assert process.poll() is None
        assert time.monotonic() < deadline_seconds
        time.sleep(0.01)


def test_ctrl_c_ends_a_command_with_processes_in_silence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dragoman", "load", "self-test"]
    with Popen(command, cwd=tmp_path, stdout=PIPE, stderr=PIPE, text=True, start_new_session=True) as process:
        wait_for_child(process, "loadtest.self_test")
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, errors) == (130, "")
