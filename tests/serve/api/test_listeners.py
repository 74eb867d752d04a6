"""Listening ports, errors of binding, and the lifetime of idle connections."""

import http.client
import socket
import time

import pytest

from serve.api.server import ListenError, open_port
from tests.support.live import LiveService


def test_port_zero_opens_a_free_port() -> None:
    with open_port("127.0.0.1", 0) as listener:
        assert listener.getsockname()[1] > 0


def test_accepted_connections_have_tcp_nodelay() -> None:
    """Without TCP_NODELAY, each response took 40 ms longer: its second packet waited for a delayed acknowledgment."""
    with (
        open_port("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_taken_port_is_named() -> None:
    with open_port("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ListenError, match=rf"^127\.0\.0\.1:{port}: Address already in use$"):
            open_port("127.0.0.1", port)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(ListenError, match=r"^192\.0\.2\.1:0: "):
        open_port("192.0.2.1", 0)


def test_a_name_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ListenError, match=r"^nowhere\.invalid:0: "):
        open_port("nowhere.invalid", 0)


def test_an_idle_connection_is_reused(live: LiveService) -> None:
    """Load balancers keep idle connections for a minute, and do not resend a request that may have arrived."""
    connection = http.client.HTTPConnection("127.0.0.1", live.service.http_port)
    connection.request("GET", "/healthz")
    assert connection.getresponse().read()
    opened = connection.sock
    time.sleep(6)  # uvicorn's default is 5 seconds
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    assert connection.sock is opened
    connection.close()
