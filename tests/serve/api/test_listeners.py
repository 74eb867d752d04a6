"""Ports that are open, and why one cannot be; and how long a connection is kept that nobody uses."""

import http.client
import socket
import time

import pytest

from serve.api.server import ListenError, open_port
from tests.support.live import LiveService


def test_port_zero_opens_a_free_port() -> None:
    with open_port("127.0.0.1", 0) as listener:
        assert listener.getsockname()[1] > 0


def test_accepted_connections_do_not_hold_packets_back() -> None:
    """Without TCP_NODELAY, every answer took 40 ms longer: its second packet waited for a delayed acknowledgement."""
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


def test_a_connection_that_was_idle_for_a_while_is_used_again(live: LiveService) -> None:
    """Load balancers keep theirs for a minute, and send no request again that may have arrived."""
    connection = http.client.HTTPConnection("127.0.0.1", live.service.http_port)
    connection.request("GET", "/healthz")
    assert connection.getresponse().read()
    opened = connection.sock
    time.sleep(6)  # uvicorn's own choice are 5 seconds
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    assert connection.sock is opened
    connection.close()
