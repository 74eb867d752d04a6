"""Items of another process: their order, errors, and what remains of an import that fails."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

import pytest

from dragoman.serve.commands.ahead import make_ahead
from dragoman.serve.commands.memory import _read
from dragoman.serve.documents.pairs import PairsError
from dragoman.serve.host.state import State
from dragoman.serve.memory import store as store_module
from dragoman.serve.memory.entry import OPERATOR, Pair


def test_another_process_makes_items_until_it_is_killed() -> None:
    def make() -> Iterator[int]:
        yield os.getpid()
        os.kill(os.getpid(), signal.SIGKILL)

    items = make_ahead(make)
    assert next(items) != os.getpid()
    with pytest.raises(BrokenProcessPool):
        next(items)


def test_an_import_keeps_in_order_what_precedes_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "BATCH", 2)
    file, pair = tmp_path / "pairs.tsv", Pair("en", "de")
    file.write_bytes(b"e\t1\nd\t2\nc\t3\nd\t2\nb\t4\n\xffa\t5\n")
    state = State(tmp_path)
    store = store_module.MemoryStore(state)
    with pytest.raises(PairsError, match="line 6: not valid UTF-8"):
        store.add_batches(OPERATOR, "m", make_ahead(partial(_read, file, "tsv", pair)), shared=True)
    assert [entry.source for entry in store.texts(OPERATOR, "m", pair)] == ["e", "d", "c"]
    state.close()
