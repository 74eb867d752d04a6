"""A service for all tests of a file, and connections to it without TLS and with the usual limits."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.interfaces import live
from tests.support.live import LiveService
from tests.support.raw_http import Connect, connect_to

__all__ = ["live"]


@pytest.fixture(name="connect")
def _connect(live: LiveService) -> Iterator[Connect]:
    with ExitStack() as stack:
        yield connect_to(stack, live)
