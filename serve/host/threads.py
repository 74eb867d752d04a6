"""Threads for calls that block, bounded per purpose, so that the work of one purpose never delays another."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """The threads of one purpose; they start with the first calls."""

    def __init__(self, name: str, count: int) -> None:
        self._executor = ThreadPoolExecutor(count, name)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Returns the result of a function; canceling the call does not stop a function that has begun."""
        call = partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)


# The store of documents; a large document is written to disk and synchronized.
DOCUMENTS = Threads("documents", 4)
# Addresses of hosts for call backs, of which four run: a name server may hold a thread after the time of its call.
CALLBACKS = Threads("callbacks", 16)
# Stored glossaries: creates, lists and changes them.
GLOSSARIES = Threads("glossaries", 4)
# Stored glossaries as requests for translation use them.
TERMS = Threads("terms", 4)
# Memories: listed, exported and changed.
MEMORIES = Threads("memories", 4)
# Memories as requests for translation use them. More threads compete with the event loop for the interpreter.
RECALLS = Threads("recalls", 2)
# Texts of memories that are similar to those of requests, which takes tens of milliseconds.
SUGGESTIONS = Threads("suggestions", 1)
