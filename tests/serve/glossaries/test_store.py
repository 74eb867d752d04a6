"""The store of glossaries: changes are whole or nothing, and the index follows each change."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from dragoman.serve import errors
from dragoman.serve.glossaries.store import SHARED, Dictionary, DictionarySummary, Glossaries, GlossaryStore
from dragoman.serve.host.state import State
from dragoman.serve.protect.terms.entry import Entry, EntryError
from dragoman.serve.protect.terms.matching import find_terms
from tests.support.full_disk import fill_database

HOUSE = Entry("house", ("Haus", "Hauses"))
DOG = Entry("dog", ("Hund",), match_case=True)


def dictionary(*entries: Entry, target: str = "de") -> Dictionary:
    return Dictionary("en", target, entries)


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[GlossaryStore]:
    state = State(tmp_path)
    yield GlossaryStore(state)
    state.close()


@pytest.fixture
def store(stored: GlossaryStore) -> Glossaries:
    return stored.of("key")


def changes(store: Glossaries, glossary_id: str) -> Iterator[Callable[[], object]]:
    yield lambda: store.replace(glossary_id, "zoo", [dictionary(DOG)])
    yield lambda: store.change(glossary_id, "zoo", [dictionary(DOG)])
    yield lambda: store.put_dictionary(glossary_id, dictionary(DOG))
    yield lambda: store.delete_dictionary(glossary_id, "en", "de")
    yield lambda: store.delete(glossary_id)


@pytest.mark.parametrize("unstorable", ["\ud800", "a\0b", "a" * 10_000])
def test_what_no_database_takes_as_an_id_or_a_language_is_unknown(
    tmp_path: Path, state_url: str | None, unstorable: str
) -> None:
    with closing(State(tmp_path, state_url)) as state:
        store = GlossaryStore(state).of("key")
        for use in (store.get, store.delete, lambda item: store.index(item, "en", "de")):
            with pytest.raises(errors.GlossaryNotFoundError):
                use(unstorable)
        made = store.create("farm", [dictionary(HOUSE)])
        with pytest.raises(errors.GlossaryNotFoundError):
            store.index(made.id, "en", unstorable)
        with pytest.raises(errors.InvalidRequestError):
            store.put_dictionary(made.id, dictionary(HOUSE, target=unstorable))
        with pytest.raises(errors.InvalidRequestError):
            store.create("farm", [dictionary(HOUSE, target=unstorable)])
        assert store.get(made.id) == made


def test_replacing_a_glossary_keeps_nothing_but_its_id(store: Glossaries) -> None:
    made = store.create("farm", [dictionary(HOUSE), dictionary(HOUSE, target="fr")])
    replaced = store.replace(made.id, "zoo", [dictionary(DOG)])
    assert (replaced.id, replaced.name, replaced.created_seconds) == (made.id, "zoo", made.created_seconds)
    assert replaced.changed_seconds >= made.changed_seconds
    assert replaced.dictionaries == (DictionarySummary("en", "de", 1),)
    assert store.entries(made.id, "en", "de") == (DOG,)


def test_one_dictionary_is_replaced_added_and_deleted(store: Glossaries) -> None:
    made = store.create("farm", [dictionary(HOUSE)])
    store.put_dictionary(made.id, dictionary(DOG))
    both = store.put_dictionary(made.id, dictionary(HOUSE, target="fr"))
    assert both.dictionaries == (DictionarySummary("en", "de", 1), DictionarySummary("en", "fr", 1))
    assert store.entries(made.id, "en", "de") == (DOG,)
    store.delete_dictionary(made.id, "en", "de")
    assert store.get(made.id).dictionaries == (DictionarySummary("en", "fr", 1),)
    with pytest.raises(errors.GlossaryNotFoundError, match="has no dictionary from en into de"):
        store.entries(made.id, "en", "de")
    with pytest.raises(errors.GlossaryNotFoundError, match="has no dictionary from en into de"):
        store.delete_dictionary(made.id, "en", "de")


def test_an_index_follows_each_change_of_its_dictionary(store: Glossaries) -> None:
    made = store.create("farm", [dictionary(HOUSE)])
    index = store.index(made.id, "en", "de")
    assert store.index(made.id, "en", "de") is index
    store.put_dictionary(made.id, dictionary(DOG))
    (found,) = find_terms("a house, a dog", [store.index(made.id, "en", "de")])
    assert found.entry == DOG
    store.delete(made.id)
    with pytest.raises(errors.GlossaryNotFoundError):
        store.index(made.id, "en", "de")


def test_an_invalid_change_changes_nothing(store: Glossaries) -> None:
    made = store.create("farm", [dictionary(HOUSE)])
    with pytest.raises(EntryError, match="entry 1: expected each source once, got 'dog' twice"):
        store.replace(made.id, "zoo", [dictionary(DOG, DOG)])
    with pytest.raises(errors.InvalidRequestError, match="two different languages"):
        store.put_dictionary(made.id, dictionary(DOG, target="en"))
    with pytest.raises(errors.InvalidRequestError, match="one dictionary per pair"):
        store.create("zoo", [dictionary(DOG), dictionary(HOUSE)])
    with pytest.raises(errors.InvalidRequestError, match="name"):
        store.change(made.id, "", [dictionary(DOG)])
    assert store.list_all() == [made]
    assert store.entries(made.id, "en", "de") == (HOUSE,)


def test_another_key_neither_sees_uses_nor_changes_a_glossary(stored: GlossaryStore) -> None:
    owned, other = stored.of("key"), stored.of("other")
    made = owned.create("farm", [dictionary(HOUSE)])
    owned.index(made.id, "en", "de")
    uses: list[Callable[[], object]] = [
        lambda: other.get(made.id),
        lambda: other.entries(made.id, "en", "de"),
        lambda: other.index(made.id, "en", "de"),
    ]
    for store in (other, stored.of(SHARED)):
        assert store.list_all() == []
    for use in (*uses, *changes(other, made.id), *changes(stored.of(SHARED), made.id)):
        with pytest.raises(errors.GlossaryNotFoundError):
            use()
    assert owned.list_all() == [made]
    assert owned.entries(made.id, "en", "de") == (HOUSE,)


def test_keys_use_but_do_not_change_what_was_stored_without_a_key(stored: GlossaryStore) -> None:
    shared, owned = stored.of(SHARED), stored.of("key")
    made = shared.create("farm", [dictionary(HOUSE)])
    assert owned.list_all() == [made] == [owned.get(made.id)]
    assert owned.entries(made.id, "en", "de") == (HOUSE,)
    for change in changes(owned, made.id):
        with pytest.raises(errors.ForbiddenError):
            change()
    assert shared.list_all() == [made]
    shared.delete(made.id)


def test_a_key_with_all_its_glossaries_keeps_no_other_from_storing(
    stored: GlossaryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.serve.glossaries.store.MAX_GLOSSARIES", 1)
    for key in ("key", "other", SHARED):
        stored.of(key).create("farm", [dictionary(HOUSE)])
        with pytest.raises(errors.GlossaryStoreFullError, match="2 glossaries of this client, expected at most 1"):
            stored.of(key).create("farm", [dictionary(HOUSE)])


def test_a_client_stores_at_most_half_of_the_glossaries_that_others_leave(
    stored: GlossaryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients without a key share the glossaries, not the room for them."""
    monkeypatch.setattr("dragoman.serve.glossaries.store.MAX_STORED_GLOSSARIES", 8)
    for address, count in (("192.0.2.1", 4), ("192.0.2.2", 2), ("192.0.2.3", 1)):
        for _ in range(count):
            stored.of(SHARED, address).create("farm", [dictionary(HOUSE)])
        with pytest.raises(errors.GlossaryStoreFullError, match=f"expected at most {count}"):
            stored.of(SHARED, address).create("farm", [dictionary(HOUSE)])


def test_a_client_stores_at_most_half_of_the_bytes_that_others_leave(
    stored: GlossaryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = stored.of(SHARED, "192.0.2.1"), stored.of(SHARED, "192.0.2.2")
    grown = first.create("farm", [dictionary(HOUSE)])
    first.create("farm", [dictionary(HOUSE)])
    monkeypatch.setattr("dragoman.serve.glossaries.store.MAX_STORED_BYTES", 1000)
    more = dictionary(*(Entry(f"term {number}", ("Wort",)) for number in range(20)))
    for store in (first, second):
        for change in (store.change, lambda *args, of=store: of.replace(args[0], "farm", args[2])):
            with pytest.raises(errors.GlossaryStoreFullError, match="bytes of glossaries"):
                change(grown.id, None, [more])
    with pytest.raises(errors.GlossaryStoreFullError, match="bytes of glossaries"):
        first.put_dictionary(grown.id, more)
    second.create("farm", [more])
    assert first.entries(grown.id, "en", "de") == (HOUSE,)


def test_a_full_database_is_named(tmp_path: Path) -> None:
    with closing(State(tmp_path)) as state:
        store = GlossaryStore(state).of(SHARED)
        fill_database(state)
        with pytest.raises(errors.StorageFullError):
            store.create("farm", [dictionary(*(Entry(f"term {number}", ("Wort",)) for number in range(1000)))])


def _add(directory: Path, glossary_id: str, number: int) -> None:
    state = State(directory)
    store = GlossaryStore(state).of(SHARED)
    for index in range(10):
        store.change(glossary_id, dictionaries=[dictionary(Entry(f"term {number} {index}", ("Wort",)))])
    state.close()


def test_two_that_change_a_glossary_at_once_lose_nothing(tmp_path: Path) -> None:
    state = State(tmp_path)
    store = GlossaryStore(state).of(SHARED)
    made = store.create("farm", [dictionary(HOUSE)])
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda number: _add(tmp_path, made.id, number), range(2)))
    assert len(store.entries(made.id, "en", "de")) == 21
    state.close()
