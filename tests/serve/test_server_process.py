"""Ports, command line, start and stop of a server in a process of its own; small programs stand in for the server."""

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


def test_a_taken_port_is_refused() -> None:
    """Otherwise the demo would show the answers of the server that has it."""
    with socket.create_server((HOST, 0)) as taken, pytest.raises(OSError, match="in use"):
        choose_ports(taken.getsockname()[1], 0)


def test_the_server_is_started_by_a_valid_command_line() -> None:
    command = server_command(Path("my bundle"), 8000, 8001)
    assert command[3:5] == ["serve", "my bundle"]
    flags = {name.removeprefix("--").replace("-", "_") for name in command[5::2]}
    assert flags <= set(ServeSettings.model_fields)


def test_a_ready_server_is_seen(live: LiveService) -> None:
    assert is_ready(live.service.http_port)


def test_a_server_that_warms_up_is_not_ready(bundle_path: Path) -> None:
    model = GatedModel(4)
    model.gate.clear()
    with run_service(bundle_path, [model], wait_ready=False) as starting:
        assert not is_ready(starting.service.http_port)


def test_nobody_is_not_ready() -> None:
    assert not is_ready(choose_ports(0, 0)[0])


def test_a_server_that_ends_is_not_waited_for(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerProcessError, match=r"ended before it was ready, with status 1: no such bundle"),
        run("raise SystemExit('no such bundle')", tmp_path) as server,
    ):
        server.wait_until_ready(timeout_seconds=60.0)


def test_a_server_that_is_never_ready_is_given_up(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerProcessError, match=r"not ready after 0\.0 seconds"),
        run(ENDS_AT_SIGTERM, tmp_path) as server,
    ):
        server.wait_until_ready(timeout_seconds=0.0)


def test_a_server_that_ends_by_itself_is_a_failure(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerProcessError, match=r"ended by itself, with status 0: it wrote nothing"),
        run("pass", tmp_path) as server,
    ):
        server.wait_for_interrupt()


def test_a_server_is_stopped_whatever_happens(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="whatever"), run(ENDS_AT_SIGTERM, tmp_path) as server:
        raise ValueError("whatever")
    assert server._process.returncode is not None


def test_a_server_that_fails_when_it_is_stopped_is_a_failure(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerProcessError, match="ended when it was stopped, with status 3"),
        run("raise SystemExit(3)", tmp_path) as server,
    ):
        server._process.wait()
