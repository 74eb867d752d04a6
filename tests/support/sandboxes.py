"""Sandboxes of tests, whose templates have hostile parsers besides the usual ones."""

import os
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from dragoman.serve.sandbox import host, sandbox
from dragoman.serve.sandbox.host import ParserHost
from dragoman.serve.sandbox.sandbox import Sandbox

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from dragoman.serve.sandbox import template; "
    "template.PARSER_MODULES = (*{usual}, {module!r}); template.main()"
)


def add_parsers(
    patch: pytest.MonkeyPatch, module: str = "tests.support.hostile_parsers", *, alone: bool = False
) -> None:
    """Adds parsers to templates; `alone`: without the usual ones, whose imports take most of a second."""
    usual = "()" if alone else "template.PARSER_MODULES"
    patch.setattr(host, "_OPTIONS", (*host._OPTIONS[:-1], _BOOT.format(usual=usual, module=module)))


@contextmanager
def shared_template() -> Iterator[None]:
    """Gives the usual sandboxes of this process one template: its imports take most of a second."""
    usual, shared = host._OPTIONS, ParserHost()
    shared._loop = Mock()
    lent = SimpleNamespace(calls=shared.calls, watch=lambda: None, close=lambda: None)

    def start() -> None:
        if shared._process is None:
            shared._start(Mock())

    def open_host() -> Any:
        if host._OPTIONS is not usual:
            return ParserHost()
        starter.submit(start).result()
        return lent

    # The kernel ends a template with the thread that started it.
    with ThreadPoolExecutor(1) as starter, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox, "ParserHost", open_host)
        yield
        shared.close()


@asynccontextmanager
async def open_sandbox() -> AsyncIterator[Sandbox]:
    sandbox = Sandbox()
    try:
        yield sandbox
    finally:
        sandbox.close()


def template_of(sandbox: Sandbox) -> int:
    """Returns the process id of the template, which runs."""
    assert sandbox._host is not None
    assert sandbox._host._process is not None
    return sandbox._host._process.pid


def is_running(process_id: int) -> bool:
    """Returns whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def make_pipe(folder: Path) -> Path:
    """Returns a named pipe that the reader must open first."""
    path = folder / "begun"
    os.mkfifo(path)
    return path
