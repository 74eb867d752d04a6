"""The state directory: processes share it, a transaction is whole or nothing, and errors name the directory."""

import stat
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, event, insert, select, update

from dragoman.serve.host.state import DATABASE, State, StateError

TABLES = MetaData()
COUNTERS = Table("counters", TABLES, Column("name", String, primary_key=True), Column("value", Integer, nullable=False))


def _open(directory: Path, url: str | None = None) -> State:
    state = State(directory, url)
    state.create(TABLES)
    return state


def _count(state: State) -> int:
    with state.reading() as connection:
        return sum(connection.execute(select(COUNTERS.c.value)).scalars())


def _increment(directory: Path, url: str | None, times: int) -> None:
    state = _open(directory, url)
    for _ in range(times):
        with state.writing() as connection:
            value = connection.execute(select(COUNTERS.c.value)).scalar()
            if value is None:
                connection.execute(insert(COUNTERS).values(name="one", value=1))
            else:
                connection.execute(update(COUNTERS).values(value=value + 1))
    state.close()


def test_processes_that_open_it_at_once_lose_no_write(tmp_path: Path, state_url: str | None) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        for done in [processes.submit(_increment, tmp_path / "state", state_url, 50) for _ in range(2)]:
            done.result()
    state = _open(tmp_path / "state", state_url)
    assert _count(state) == 100
    state.close()


def test_an_exception_undoes_the_transaction(tmp_path: Path, state_url: str | None) -> None:
    state = _open(tmp_path, state_url)
    with suppress(InterruptedError), state.writing() as connection:
        connection.execute(insert(COUNTERS).values(name="one", value=1))
        raise InterruptedError
    assert _count(state) == 0
    state.close()


def test_a_reader_sees_one_state_and_does_not_wait_for_a_writer(tmp_path: Path, state_url: str | None) -> None:
    state = _open(tmp_path, state_url)
    with state.reading() as reader:
        assert reader.execute(select(COUNTERS)).all() == []
        with state.writing() as writer:
            writer.execute(insert(COUNTERS).values(name="one", value=1))
            assert _count(state) == 0
        assert reader.execute(select(COUNTERS)).all() == []
    assert _count(state) == 1
    state.close()


@pytest.fixture
def opened() -> Iterator[list[object]]:
    """The open connections of the driver to any database."""
    connections = list[object]()
    events = (
        ("connect", lambda item, _: connections.append(item)),
        ("close", lambda item, _: connections.remove(item)),
    )
    for name, listener in events:
        event.listen(Engine, name, listener)
    yield connections
    for name, listener in events:
        event.remove(Engine, name, listener)


def test_late_transactions_leave_no_connection(tmp_path: Path, state_url: str | None, opened: list[object]) -> None:
    state = _open(tmp_path, state_url)
    with state.reading(), state.reading():
        state.close()
        assert len(opened) == 2
    assert opened == []
    assert _count(state) == 0
    assert opened == []


def test_a_state_that_cannot_be_opened_leaves_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[object]
) -> None:
    holder = _open(tmp_path)
    monkeypatch.setattr("dragoman.serve.host.state.LOCK_TIMEOUT_SECONDS", 0)
    with holder.writing(), pytest.raises(StateError, match="database is locked"):
        State(tmp_path)
    holder.close()
    assert opened == []


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    _open(tmp_path / "state").close()
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "state" / DATABASE).stat().st_mode) == 0o600


def test_an_old_sqlite_is_named_with_the_version_that_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sqlite3.sqlite_version_info", (3, 34, 1))
    with pytest.raises(StateError, match=r"^state directory .*: expected SQLite 3\.35 or newer, got \d"):
        State(tmp_path)


def test_a_directory_that_cannot_be_used_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"state directory .*file: File exists"):
        State(tmp_path / "file")
    (tmp_path / DATABASE).write_bytes(b"no database" * 500)
    with pytest.raises(StateError, match=f"state directory {tmp_path}: file is not a database"):
        State(tmp_path)


@pytest.mark.parametrize("url", ["mysql://user:secret@host/name", "secret", "postgresql:secret@", "sqlite:///x"])
def test_an_address_of_another_kind_is_refused_and_not_shown(tmp_path: Path, url: str) -> None:
    with pytest.raises(StateError, match="postgresql://USER") as raised:
        State(tmp_path, url)
    assert "secret" not in str(raised.value)


def test_a_database_that_does_not_answer_is_named_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"database postgresql://user:\*\*\*@127.0.0.1:1/name: ") as raised:
        State(tmp_path, "postgresql://user:secret@127.0.0.1:1/name")
    assert "secret" not in str(raised.value)
