"""The event loop of a server."""

import asyncio
import sys
from importlib import reload

import pytest

from dragoman.serve.host import event_loop


async def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_the_event_loop_is_that_of_uvloop() -> None:
    assert type(event_loop.run(_loop())).__module__ == "uvloop"


def test_without_uvloop_it_is_that_of_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "uvloop", None)
        reload(event_loop)
        assert type(event_loop.run(_loop())).__module__.startswith("asyncio.")
    reload(event_loop)


def test_a_coroutine_of_a_server_returns_its_result_or_raises_its_error() -> None:
    async def fail() -> None:
        raise OSError("no")

    assert event_loop.run(asyncio.sleep(0, "result")) == "result"
    with pytest.raises(OSError, match="no"):
        event_loop.run(fail())
