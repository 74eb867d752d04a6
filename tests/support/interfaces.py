"""A service for all tests of a file; tests of counters and of the shutdown use `gated`, which is new for each test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import deepl
import pytest

from tests.support.live import LiveService, run_service


@pytest.fixture(scope="module")
def live(bundle_path: Path) -> Iterator[LiveService]:
    """A ready service in front of two engines with fake models."""
    with run_service(bundle_path) as service:
        yield service


# Returns a client of a service, by default for any key.
OpenDeepl = Callable[..., deepl.DeepLClient]


@pytest.fixture
def open_deepl() -> Iterator[OpenDeepl]:
    """Closes the clients: the garbage collector would report their open sockets in another test."""
    with ExitStack() as stack:

        def connect(live: LiveService, key: str = "any") -> deepl.DeepLClient:
            return stack.enter_context(closing(deepl.DeepLClient(key, server_url=live.http_url)))

        yield connect
