"""Corrections: they wait until they are approved, have limits per client, and propose terms."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from dragoman.serve import errors
from dragoman.serve.host.state import State
from dragoman.serve.memory import corrections as corrections_module
from dragoman.serve.memory import store as store_module
from dragoman.serve.memory.corrections import Correction, CorrectionStore
from dragoman.serve.memory.entry import OPERATOR, Client, Entry, Pair
from dragoman.serve.memory.pattern import read_pattern
from dragoman.serve.memory.store import MemoryStore, Wanted

PAIR = Pair("en", "de")
GUEST, OTHER, TEAM = Client("", "192.0.2.1"), Client("", "192.0.2.2"), Client("t", "t", approves=True)
OWNER = Client("o", "o")
CORRECTION = Correction(PAIR, Entry("A dog", "Ein Hund"), memory="m")


@pytest.fixture
def state(tmp_path: Path, state_url: str | None) -> Iterator[State]:
    opened = State(tmp_path, state_url)
    yield opened
    opened.close()


def found(state: State, client: Client) -> list[Entry]:
    pattern = read_pattern("a dog")
    try:
        return MemoryStore(state).recall(client, ["m"], PAIR).find({"a dog": pattern}).get(pattern.key, [])
    except errors.MemoryNotFoundError:
        return []


def test_a_correction_answers_once_a_key_with_that_right_approves_it(state: State) -> None:
    store = CorrectionStore(state)
    number = store.add(GUEST, CORRECTION)
    assert [item.source for item in store.list_all(GUEST)] == ["A dog"]
    assert store.list_all(OTHER) == []
    assert found(state, GUEST) == []
    for client in (GUEST, OWNER):
        with pytest.raises(errors.ForbiddenError):
            store.approve(client, [number])
    assert [item.id for item in store.list_all(TEAM)] == [number]
    assert store.approve(TEAM, [number]) == 1
    assert [entry.target for entry in found(state, OTHER)] == ["Ein Hund"]
    (entry,) = MemoryStore(state).entries(OPERATOR, "m", Wanted(origin="correction"))
    assert (entry.author, store.list_all(TEAM)) == ("192.0.2.1", [])
    with pytest.raises(errors.MemoryNotFoundError, match=f"correction {number}: unknown"):
        store.approve(TEAM, [number])


def test_a_correction_for_a_private_memory_stays_with_its_key(state: State) -> None:
    store, memories = CorrectionStore(state), MemoryStore(state)
    memories.add(OWNER, "m", PAIR, [Entry("x", "y")])
    number = store.add(OWNER, CORRECTION)
    assert store.list_all(TEAM) == []
    with pytest.raises(errors.MemoryNotFoundError):
        store.approve(TEAM, [number])
    assert store.approve(OPERATOR, [number]) == 1
    assert [entry.target for entry in found(state, OWNER)] == ["Ein Hund"]
    assert found(state, TEAM) == []


def test_corrections_are_deleted_by_those_who_see_them(state: State) -> None:
    store = CorrectionStore(state)
    first, second = store.add(GUEST, CORRECTION), store.add(OTHER, CORRECTION)
    with pytest.raises(errors.MemoryNotFoundError):
        store.delete(GUEST, [first, second])
    assert store.delete(GUEST, [first]) == store.delete(TEAM, [second]) == 1


def test_one_client_leaves_room_for_the_corrections_of_others(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corrections_module, "MAX_CORRECTIONS", 4)
    store = CorrectionStore(state)
    store.add(GUEST, CORRECTION)
    store.add(GUEST, CORRECTION)
    with pytest.raises(errors.MemoryStoreFullError, match="2 corrections of this client wait, expected at most 2"):
        store.add(GUEST, CORRECTION)
    assert store.add(OTHER, CORRECTION)


def test_a_correction_that_exceeds_the_share_of_its_memory_is_not_approved(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, memories = CorrectionStore(state), MemoryStore(state)
    memories.add(OWNER, "m", PAIR, [Entry("x", "y")])
    monkeypatch.setattr(store_module, "MAX_STORED_ENTRIES", 3)
    private, shared = store.add(OWNER, CORRECTION), store.add(GUEST, CORRECTION)
    with pytest.raises(errors.MemoryStoreFullError, match="2 entries of this client, expected at most 1"):
        store.approve(OPERATOR, [shared, private])
    assert found(state, GUEST) == found(state, OWNER) == []
    assert store.approve(OPERATOR, [shared]) == 1
    assert [entry.target for entry in found(state, GUEST)] == ["Ein Hund"]


def test_suggestions_of_earlier_versions_become_corrections(state: State) -> None:
    with state.writing() as connection:
        connection.execute(
            sa.text("CREATE TABLE suggestions (number INTEGER PRIMARY KEY, q TEXT, s TEXT, source TEXT, target TEXT)")
        )
        insert = sa.text("INSERT INTO suggestions VALUES (:number, :q, :s, :source, :target)")
        for number, row in enumerate((("a", "b", "en", "de"), ("c", "d", "en", "fr"), (" ", "d", "a", "b"))):
            connection.execute(insert, dict(zip(("number", "q", "s", "source", "target"), (number, *row), strict=True)))
    for _ in range(2):
        first, second = CorrectionStore(state).list_all(OPERATOR)
    assert (first.source, first.target, first.memory, first.author) == ("a", "b", "corrections", "")
    assert (second.source_language, second.target_language) == ("en", "fr")


def test_a_term_that_is_corrected_three_times_the_same_way_is_proposed(state: State) -> None:
    store = CorrectionStore(state)
    texts = [("Open the valve", "das Ventil"), ("A valve leaks", "Ein Ventil"), ("The old valve", "altes Ventil")]
    for number, (text, right) in enumerate(texts):
        assert store.terms(OPERATOR) == []
        wrong = right.replace("Ventil", "Tal")
        for client in (GUEST, OTHER) if number == 0 else (GUEST,):
            store.add(client, Correction(PAIR, Entry(text, right), wrong))
    (term,) = store.terms(OPERATOR)
    assert list(term.values()) == ["en", "de", "valve", "Ventil", 3]


def test_terms_of_long_repetitive_texts_take_no_time_and_need_the_right_to_approve(state: State) -> None:
    store = CorrectionStore(state)
    store.add(GUEST, Correction(PAIR, Entry("x", "a b " * 2000), "b a " * 2000))
    started = time.monotonic()
    assert store.terms(TEAM) == []
    assert time.monotonic() - started < 5
    with pytest.raises(errors.ForbiddenError):
        store.terms(GUEST)


def test_a_memory_that_a_correction_made_goes_with_it_unless_it_was_used(state: State) -> None:
    store, memories = CorrectionStore(state), MemoryStore(state)
    first, second = store.add(GUEST, CORRECTION), store.add(GUEST, CORRECTION)
    store.delete(GUEST, [first])
    assert [memory.name for memory in memories.list_all(GUEST)] == ["m"]
    store.delete(GUEST, [second])
    assert memories.list_all(GUEST) == []
    number = store.add(GUEST, CORRECTION)
    store.approve(TEAM, [store.add(GUEST, CORRECTION)])
    store.delete(TEAM, [number])
    assert memories.list_all(GUEST)[0].entry_count == 1


@pytest.mark.parametrize(
    ("entry", "translation", "field"),
    [
        (Entry("a", "b", "c" * 10_001), "", "context"),
        (Entry("a", "b"), "c" * 10_001, "translation"),
        (Entry("a", "\0"), "", "target"),
        (Entry("\ud800", "b"), "", "source"),
        (Entry("a", "b"), "\udfff", "translation"),
    ],
)
def test_each_text_of_a_correction_is_checked(state: State, entry: Entry, translation: str, field: str) -> None:
    with pytest.raises(errors.InvalidRequestError) as refused:
        CorrectionStore(state).add(GUEST, Correction(PAIR, entry, translation))
    assert refused.value.field == field
