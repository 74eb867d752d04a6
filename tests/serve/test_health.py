"""The health check of a container finds the server by its listening sockets, whatever its settings."""

import os
import socket
from pathlib import Path

import pytest

from serve.health import is_live, listening_ports
from tests.support.certificates import Authority
from tests.support.live import run_service


@pytest.mark.parametrize("mutual", [None, False, True])
def test_a_server_is_live_with_and_without_tls(bundle_path: Path, tmp_path: Path, mutual: bool | None) -> None:
    """Without TLS, with TLS, and with TLS that requires client certificates."""
    authority = Authority(tmp_path)
    settings = {} if mutual is None else authority.settings()
    if mutual:
        settings["tls_client_ca_file"] = authority.file
    with run_service(bundle_path, **settings) as live:
        assert is_live(live.service.http_port)
        assert not is_live(live.service.grpc_port)
        ports = set(listening_ports(Path(f"/proc/{os.getpid()}")))
        assert {live.service.http_port, live.service.grpc_port} <= ports
    assert not is_live(live.service.http_port)


def test_only_ports_of_the_process_count() -> None:
    process = Path(f"/proc/{os.getpid()}")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert port in listening_ports(process)
        with socket.create_connection(("127.0.0.1", port)) as connection:
            assert connection.getsockname()[1] not in listening_ports(process)
    assert port not in listening_ports(process)
