"""The health check of a container finds the server by its listening sockets, whatever its settings."""

import os
import socket
from pathlib import Path

import pytest

from dragoman.serve.commands.health import has_live_server, is_live, listening_addresses
from tests.support.cases import cases
from tests.support.certificates import Authority
from tests.support.live import run_service

CASES = cases(__file__)

OWN = Path(f"/proc/{os.getpid()}")


@pytest.mark.parametrize("mutual", [None, False, True])
def test_a_server_is_live_with_and_without_tls(bundle_path: Path, tmp_path: Path, mutual: bool | None) -> None:
    """Without TLS, with TLS, and with TLS that requires client certificates."""
    authority = Authority(tmp_path)
    settings = {} if mutual is None else authority.settings()
    if mutual:
        settings["tls_client_ca_file"] = authority.file
    with run_service(bundle_path, **settings) as live:
        rest, grpc = ("127.0.0.1", live.service.http_port), ("127.0.0.1", live.service.grpc_port)
        assert is_live(*rest)
        assert not is_live(*grpc)
        assert {rest, grpc} <= set(listening_addresses(OWN))
    assert not is_live(*rest)


def test_a_server_is_asked_at_its_own_address(bundle_path: Path, tmp_path: Path) -> None:
    """Process 1 may be the init of `docker run --init`, and may belong to another user or have ended."""
    processes = [tmp_path / "1", tmp_path / "7"]
    processes[0].symlink_to("/proc/nowhere")
    assert not has_live_server(tmp_path)
    with run_service(bundle_path, host="127.0.0.2") as live:
        port = live.service.http_port
        assert ("127.0.0.2", port) in listening_addresses(OWN)
        assert not is_live("127.0.0.1", port)
        processes[1].symlink_to(OWN)
        assert has_live_server(tmp_path)


@pytest.mark.parametrize(("host", "requested"), CASES["an address is that of the socket or the loopback for all"])
def test_an_address_is_that_of_the_socket_or_the_loopback_for_all(host: str, requested: str) -> None:
    try:
        listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError:
        pytest.skip(f"this machine has no address {host}")
    with listener:
        assert (requested, listener.getsockname()[1]) in listening_addresses(OWN)


def test_only_ports_of_the_process_count() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        assert address in listening_addresses(OWN)
        with socket.create_connection(address) as connection:
            assert connection.getsockname() not in listening_addresses(OWN)
    assert address not in listening_addresses(OWN)
