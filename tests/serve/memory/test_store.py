"""The store of memories: what is added, found, counted, bounded and deleted, and who may do it."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dragoman.serve import errors
from dragoman.serve.host.state import State
from dragoman.serve.memory import store as store_module
from dragoman.serve.memory.entry import OPERATOR, Client, Entry, Pair
from dragoman.serve.memory.pattern import read_pattern
from dragoman.serve.memory.store import MemoryStore, Wanted

PAIR = Pair("en", "de")
OWNER, OTHER, TEAM = Client("a", "a"), Client("b", "b"), Client("c", "c", approves=True)
HOUSE, DOG = Entry("The house", "Das Haus", "x\0y"), Entry("A dog", "Ein Hund")


@pytest.fixture
def store(tmp_path: Path, state_url: str | None) -> Iterator[MemoryStore]:
    state = State(tmp_path, state_url)
    yield MemoryStore(state)
    state.close()


def found(store: MemoryStore, client: Client, text: str, *names: str, pair: Pair = PAIR) -> list[str]:
    pattern = read_pattern(text)
    matches = store.recall(client, names or ["m"], pair).find({text: pattern})
    return [entry.target for entry in matches.get(pattern.key, [])]


def test_entries_are_found_by_language_and_key_with_the_newest_first(store: MemoryStore) -> None:
    assert store.add(OWNER, "m", PAIR, [HOUSE, DOG, HOUSE]) == 2
    assert store.add(OWNER, "m", PAIR, [HOUSE, Entry("the HOUSE", "Haus")]) == 1
    assert found(store, OWNER, "The  house") == ["Haus", "Das Haus"]
    assert found(store, OWNER, "The house", pair=Pair("en", "fr")) == []
    (memory,) = store.list_all(OWNER)
    assert (memory.name, memory.shared, memory.version, memory.entry_count) == ("m", False, 2, 3)
    assert [entry.context for entry in store.entries(OWNER, "m", Wanted())] == ["xy", "", ""]


def test_another_key_neither_finds_nor_lists_a_private_memory(store: MemoryStore) -> None:
    store.add(OWNER, "m", PAIR, [HOUSE])
    recall = store.recall(OWNER, ["m"], PAIR)
    for client in (OTHER, TEAM, Client(""), OPERATOR):
        assert store.list_all(client) == []
        with pytest.raises(errors.MemoryNotFoundError):
            store.recall(client, ["m"], PAIR)
    foreign = store_module.Recall(recall.state, store_module.accounts_of(OTHER), recall.memories, PAIR)
    assert foreign.find({"The house": read_pattern("The house")}) == {}


def test_a_text_of_another_key_costs_as_many_steps_of_the_database_as_an_unknown_one(tmp_path: Path) -> None:
    """So no client learns from the time of an answer what the memory of another key has."""
    state, steps = State(tmp_path), list[int]()
    store = MemoryStore(state)
    store.add(OWNER, "m", PAIR, [HOUSE])
    store.add(OTHER, "m", PAIR, [DOG])
    with state.reading() as connection:
        driver: Any = connection.connection.driver_connection

    def count(client: Client, text: str) -> tuple[int, int]:
        """Returns the steps to find an equal text and similar ones."""
        recall, pattern, counts = store.recall(client, ["m"], PAIR), read_pattern(text), list[int]()
        for call in (partial(recall.find, {text: pattern}), partial(recall.find_similar, text)):
            steps.clear()
            driver.set_progress_handler(lambda: steps.append(1), 1)
            call()
            driver.set_progress_handler(None, 1)
            counts.append(len(steps))
        return counts[0], counts[1]

    assert count(OTHER, "The house") == count(OTHER, "The mouse")
    equal, similar = (own > other for own, other in zip(count(OWNER, "The house"), count(OWNER, "The m"), strict=True))
    assert (equal, similar) == (True, True)
    state.close()


def test_shared_memories_are_changed_by_those_who_approve(store: MemoryStore) -> None:
    for client in (OWNER, Client("")):
        with pytest.raises(errors.ForbiddenError):
            store.add(client, "m", PAIR, [HOUSE], shared=True)
    store.add(TEAM, "m", PAIR, [HOUSE], shared=True)
    assert found(store, OTHER, "The house") == found(store, Client(""), "The house") == ["Das Haus"]
    with pytest.raises(errors.ForbiddenError):
        store.delete(OWNER, "m")
    with pytest.raises(errors.ForbiddenError):
        store.add(Client(""), "m", PAIR, [HOUSE])
    store.add(OWNER, "m", PAIR, [Entry("The house", "Haus")])
    assert found(store, OWNER, "The house") == ["Haus"]
    assert store.delete(OPERATOR, "m") == 1
    assert [memory.shared for memory in store.list_all(OWNER)] == [False]


def test_entries_are_deleted_by_author_origin_and_age(store: MemoryStore) -> None:
    store.add(TEAM, "m", PAIR, [HOUSE], shared=True)
    store.add(OPERATOR, "m", PAIR, [DOG], shared=True)
    first, second = store.entries(OPERATOR, "m", Wanted("en", "de", "import"))
    assert (first.author, second.author) == ("c", "")
    assert store.delete(OPERATOR, "m", Wanted(origin="correction")) == 0
    assert store.delete(OPERATOR, "m", Wanted(before_seconds=first.created_seconds)) == 0
    assert store.delete(OPERATOR, "m", Wanted(author="c")) == 1
    assert store.entries(OPERATOR, "m", Wanted()) == [second]
    assert list(store.texts(OPERATOR, "m", PAIR)) == [DOG]
    assert store.list_all(OPERATOR)[0].entry_count == 1


def test_a_key_leaves_room_for_others(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_STORED_ENTRIES", 4)
    entries = [Entry(word, word) for word in "pqrst"]
    with pytest.raises(errors.MemoryStoreFullError, match="3 entries of this client, expected at most 2"):
        store.add(OWNER, "m", PAIR, entries[:3])
    assert store.list_all(OWNER) == []
    assert store.add(OWNER, "m", PAIR, entries[:2]) == 2
    assert store.add(OPERATOR, "m", PAIR, entries[:2], shared=True) == 2
    with pytest.raises(errors.MemoryStoreFullError):
        store.add(OPERATOR, "m", PAIR, entries, shared=True)
    monkeypatch.setattr(store_module, "MAX_STORED_ENTRIES", 100)
    monkeypatch.setattr(store_module, "MAX_STORED_BYTES", 8)
    with pytest.raises(errors.MemoryStoreFullError, match="bytes"):
        store.add(OTHER, "m", PAIR, [Entry("aaa", "bbb")])
    with pytest.raises(errors.MemoryStoreFullError, match="bytes"):
        store.add(OTHER, "m", PAIR, [Entry("a", "b", "where it occurs")])


@pytest.mark.parametrize(
    ("name", "pair", "entry"),
    [("", PAIR, DOG), ("a\n", PAIR, DOG), ("m", Pair("", "de"), DOG), ("m", PAIR, Entry(" ", "b"))],
)
def test_invalid_names_languages_and_texts_are_refused(store: MemoryStore, name: str, pair: Pair, entry: Entry) -> None:
    with pytest.raises(errors.InvalidRequestError):
        store.add(OWNER, name, pair, [entry])


def test_only_a_client_that_may_approve_sees_the_authors_of_a_shared_memory(store: MemoryStore) -> None:
    store.add(TEAM, "m", PAIR, [HOUSE], shared=True)
    assert [row.author for row in store.entries(TEAM, "m", Wanted(author="c"))] == ["c"]
    assert "author" not in store.entries(OTHER, "m", Wanted())[0]._asdict()
    with pytest.raises(errors.ForbiddenError):
        store.entries(OTHER, "m", Wanted(author="c"))
    store.add(OWNER, "m", PAIR, [HOUSE])
    assert [row.author for row in store.entries(OWNER, "m", Wanted(author="a"))] == ["a"]


def test_a_memory_that_replaces_a_deleted_one_has_another_id(store: MemoryStore) -> None:
    store.add(OWNER, "m", PAIR, [HOUSE])
    recall = store.recall(OWNER, ["m"], PAIR)
    store.delete(OWNER, "m")
    store.add(OWNER, "n", PAIR, [HOUSE])
    assert recall.find({"The house": read_pattern("The house")}) == {}
    for name in ("m", "a\0", "\ud800"):
        with pytest.raises(errors.MemoryNotFoundError):
            store.delete(OWNER, name)


def test_each_text_finds_its_newest_entries_and_those_of_its_spelling(store: MemoryStore) -> None:
    store.add(OWNER, "m", PAIR, [HOUSE, DOG, *(Entry("the house", f"Haus {number}") for number in range(60))])
    patterns = {text: read_pattern(text) for text in ("The house", "A dog", "\ud800\0")}
    matches = store.recall(OWNER, ["m"], PAIR).find(patterns)
    targets = [entry.target for entry in matches["the house"]]
    assert targets == [*(f"Haus {number}" for number in range(59, 40, -1)), "Das Haus"]
    assert [entry.target for entry in matches["a dog"]] == ["Ein Hund"]
