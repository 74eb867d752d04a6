"""Ports, command line, start and stop of a server process; small programs replace the server."""

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from dragoman.serve.host import server_process
from dragoman.serve.host.server_process import HOST, ServerProcess, ServerProcessError, is_ready, reserve_ports
from dragoman.serve.http.server import open_port, reserve_shared_port
from dragoman.serve.settings import ServeSettings
from tests.support.live import GatedModel, run_service

ENDS_AT_SIGTERM = "import signal; signal.signal(signal.SIGTERM, lambda *_: exit(0)); signal.pause()"


@contextmanager
def run(program: str, folder: Path) -> Iterator[ServerProcess]:
    command = [sys.executable, "-c", program]
    with reserve_ports(0) as (http_port,), ServerProcess.run(command, http_port, folder / "server.log") as server:
        yield server


def test_a_port_of_0_becomes_a_free_one_and_a_taken_port_is_rejected() -> None:
    """Otherwise another server would answer the demo."""
    with reserve_ports(0, 0) as (http_port, grpc_port):
        assert len({0, http_port, grpc_port}) == 3
    with (
        socket.create_server((HOST, 0)) as taken,
        pytest.raises(OSError, match="in use"),
        reserve_ports(taken.getsockname()[1], 0),
    ):
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="other systems let no server listen on a reserved port")
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("host", [HOST, "::"])
def test_only_a_server_that_names_a_reserved_port_gets_it(host: str, *, shared: bool) -> None:
    with reserve_ports(0) as (port,):
        assert not is_ready(port)
        with reserve_shared_port(host, port) if shared else open_port(host, port) as listener:
            assert listener.getsockname()[1] == port
        with ExitStack() as stack:
            others = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(100)]
            assert port not in {other.getsockname()[1] for other in others}


def test_the_command_line_has_only_settings_of_the_server() -> None:
    command = server_process.server_command(Path("my bundle"), 8000, 8001)
    assert command[3:5] == ["serve", "my bundle"]
    assert {name.removeprefix("--").replace("-", "_") for name in command[5::2]} <= set(ServeSettings.model_fields)


def test_a_server_is_ready_after_its_warm_up(bundle_path: Path) -> None:
    model = GatedModel(4)
    model.gate.clear()
    with run_service(bundle_path, [model], wait_ready=False) as starting:
        assert not is_ready(starting.service.http_port)
    with run_service(bundle_path) as live:
        assert is_ready(live.service.http_port)
    assert not is_ready(live.service.http_port)


def test_a_server_that_ends_during_the_start_raises_its_last_output(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerProcessError, match=r"\b1: no such bundle$"),
        run("raise SystemExit('no such bundle')", tmp_path) as server,
    ):
        server.wait_until_ready(timeout_seconds=60.0)


def test_a_server_that_is_not_ready_in_time_raises(tmp_path: Path) -> None:
    with pytest.raises(ServerProcessError, match=r"\b0\.0\b"), run(ENDS_AT_SIGTERM, tmp_path) as server:
        server.wait_until_ready(timeout_seconds=0.0)


def test_a_server_that_ends_unexpectedly_raises(tmp_path: Path) -> None:
    with pytest.raises(ServerProcessError, match=r"\b0\b"), run("pass", tmp_path) as server:
        server.wait_for_interrupt()


def test_a_server_is_stopped_after_an_exception(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), run(ENDS_AT_SIGTERM, tmp_path) as server:
        raise ZeroDivisionError
    assert server._process.returncode is not None


def test_an_exit_status_after_the_stop_raises(tmp_path: Path) -> None:
    with pytest.raises(ServerProcessError, match=r"\b3\b"), run("raise SystemExit(3)", tmp_path) as server:
        server._process.wait()
