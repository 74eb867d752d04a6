"""Ports, command line, start and stop of a server process; small programs replace the server."""

import socket
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from serve.server_process import HOST, ServerProcess, ServerProcessError, choose_ports, is_ready, server_command
from serve.settings import ServeSettings
from tests.support.live import GatedModel, LiveService, run_service

ENDS_AT_SIGTERM = "import signal; signal.signal(signal.SIGTERM, lambda *_: exit(0)); signal.pause()"


def run(program: str, folder: Path) -> AbstractContextManager[ServerProcess]:
    http_port, _ = choose_ports(0, 0)
    return ServerProcess.run([sys.executable, "-c", program], http_port, folder / "server.log")


def test_a_port_of_0_becomes_a_free_one() -> None:
    http_port, grpc_port = choose_ports(0, 0)
    assert 0 not in (http_port, grpc_port)
    assert http_port != grpc_port


def test_a_taken_port_is_rejected() -> None:
    """Otherwise another server would answer the demo."""
    with socket.create_server((HOST, 0)) as taken, pytest.raises(OSError, match="in use"):
        choose_ports(taken.getsockname()[1], 0)


def test_the_command_line_has_only_settings_of_the_server() -> None:
    command = server_command(Path("my bundle"), 8000, 8001)
    assert command[3:5] == ["serve", "my bundle"]
    flags = {name.removeprefix("--").replace("-", "_") for name in command[5::2]}
    assert flags <= set(ServeSettings.model_fields)


def test_a_ready_server_is_ready(live: LiveService) -> None:
    assert is_ready(live.service.http_port)


def test_a_server_that_warms_up_is_not_ready(bundle_path: Path) -> None:
    model = GatedModel(4)
    model.gate.clear()
    with run_service(bundle_path, [model], wait_ready=False) as starting:
        assert not is_ready(starting.service.http_port)


def test_a_missing_server_is_not_ready() -> None:
    assert not is_ready(choose_ports(0, 0)[0])


def test_a_server_that_ends_during_the_start_raises_its_last_output(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerProcessError, match=r"with status 1: no such bundle$"),
        run("raise SystemExit('no such bundle')", tmp_path) as server,
    ):
        server.wait_until_ready(timeout_seconds=60.0)


def test_a_server_that_is_not_ready_in_time_raises(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerProcessError, match=r"not ready after 0\.0 seconds"),
        run(ENDS_AT_SIGTERM, tmp_path) as server,
    ):
        server.wait_until_ready(timeout_seconds=0.0)


def test_a_server_that_ends_unexpectedly_raises(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerProcessError, match=r"with status 0: "),
        run("pass", tmp_path) as server,
    ):
        server.wait_for_interrupt()


def test_a_server_is_stopped_after_an_exception(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="whatever"), run(ENDS_AT_SIGTERM, tmp_path) as server:
        raise ValueError("whatever")
    assert server._process.returncode is not None


def test_an_exit_status_after_the_stop_raises(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerProcessError, match="with status 3"),
        run("raise SystemExit(3)", tmp_path) as server,
    ):
        server._process.wait()
