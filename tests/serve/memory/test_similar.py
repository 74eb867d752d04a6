"""Similar texts: what counts as similar, that an index finds as an exhaustive search, and what is left out."""

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path

import pytest
import sqlalchemy as sa

from dragoman.serve.host.state import State
from dragoman.serve.memory import similar
from dragoman.serve.memory import store as store_module
from dragoman.serve.memory.corrections import Correction, CorrectionStore
from dragoman.serve.memory.entry import OPERATOR, Client, Entry, Pair
from dragoman.serve.memory.pattern import read_pattern
from dragoman.serve.memory.store import MemoryStore, Recall, accounts_of
from dragoman.serve.memory.tables import POSTINGS

PAIR = Pair("en", "de")
OWNER, OTHER = Client("a", "a"), Client("b", "b")
TEXTS = ["Open the file menu 3", "Delete all files", "Cancel", "打开所有文件夹吗"]


@pytest.fixture
def state(tmp_path: Path, state_url: str | None) -> Iterator[State]:
    state = State(tmp_path, state_url)
    yield state
    state.close()


def put(state: State, *texts: str, client: Client = OWNER, name: str = "m") -> MemoryStore:
    store = MemoryStore(state)
    store.add(client, name, PAIR, [Entry(text, f"({text})") for text in texts])
    return store


def found(store: MemoryStore, text: str, *names: str, pair: Pair = PAIR, client: Client = OWNER) -> dict[str, float]:
    recall = store.recall(client, names or ["m"], pair)
    return {item.source: item.similarity for item in recall.find_similar(text)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("open the FILE menu 77", {"Open the file menu 3": 1.0}),
        ("Open a file menu 3", {"Open the file menu 3": 1 - 3 / 20}),
        ("Delete my files", {"Delete all files": 1 - 3 / 16}),
        ("Cancels", {"Cancel": 1 - 1 / 7}),
        ("打开所有文件吗", {"打开所有文件夹吗": 1 - 1 / 8}),
        ("Save the house", {}),
        ("", {}),
    ],
)
def test_similarity_is_one_less_the_edits_per_character(state: State, text: str, expected: dict[str, float]) -> None:
    assert found(put(state, *TEXTS), text) == pytest.approx(expected)


def test_the_most_similar_ones_come_first_then_those_of_an_earlier_memory_then_the_newest(state: State) -> None:
    store = put(state, "one two three", "one two threx", "one two throo", "one two thrax")
    put(state, "one two thre", name="n")
    assert list(found(store, "one two threa")) == ["one two threx", "one two three", "one two thrax"]
    assert list(found(store, "one two threa", "n", "m"))[:2] == ["one two thre", "one two threx"]


def test_nothing_of_another_key_language_or_of_what_is_deleted_or_waits_is_found(state: State) -> None:
    store, corrections = put(state, *TEXTS), CorrectionStore(state)
    mine = store.recall(OWNER, ["m"], PAIR)
    foreign = Recall(state, accounts_of(OTHER), mine.memories, PAIR)
    assert foreign.find_similar("Cancels") == []
    assert found(store, "Cancels", pair=Pair("en", "fr")) == {}
    number = corrections.add(OPERATOR, Correction(PAIR, Entry("A correction", "x"), memory="c"))
    assert found(store, "A corrections", "c", client=OPERATOR) == {}
    corrections.approve(OPERATOR, [number])
    assert list(found(store, "A corrections", "c", client=OPERATOR)) == ["A correction"]
    store.delete(OWNER, "m", store_module.Wanted(origin="import"))
    assert found(store, "Cancels") == {}


def edited(text: str, random_: random.Random, words: list[str]) -> str:
    changed = text.split()
    for _ in range(random_.randint(1, 3)):
        changed[random_.randrange(len(changed))] = random_.choice(words)
    return " ".join(changed)


def test_the_index_finds_what_an_exhaustive_search_finds(state: State) -> None:
    generator = random.Random(3)
    words = ["".join(generator.choices("abcdefgh", k=generator.randint(2, 9))) for _ in range(300)]
    texts = [" ".join(generator.choices(words, k=generator.randint(1, 14))) for _ in range(3000)]
    store, queries = put(state, *texts), [edited(text, generator, words) for text in texts[:200]]
    keys = [read_pattern(text).key for text in texts]
    best = [max(similar.similarity_of(query, key) for key in keys) for query in queries]
    ours = [max(found(store, query).values(), default=0.0) for query in queries]
    reached = [own == expected for own, expected in zip(ours, best, strict=True) if expected]
    assert len(reached) > 80
    assert sum(reached) >= 0.95 * len(reached)


def test_the_work_for_one_text_is_bounded(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    store = put(state, *(f"the same words again {chr(0x4E00 + number)}" for number in range(1000)))
    compared = list[str]()

    def compare(_: str, other: str) -> float:
        compared.append(other)
        return 0.0

    monkeypatch.setattr(store_module, "similarity_of", compare)
    assert found(store, "the same words again") == {}
    assert len(compared) == similar.MAX_CANDIDATES
    compared.clear()
    assert found(store, "a" * (similar.MAX_CHARACTERS + 1)) == {}
    assert compared == []


def test_an_index_that_is_built_again_has_what_counts(state: State) -> None:
    store, corrections = put(state, *TEXTS), CorrectionStore(state)
    put(state, "Another text", client=OTHER)
    corrections.add(OWNER, Correction(PAIR, Entry("A correction", "x"), memory="m"))
    with state.writing() as connection:
        connection.execute(sa.delete(POSTINGS))
        connection.execute(sa.text("CREATE TABLE memory_shingles (id INTEGER)"))
    assert found(store, "Cancels") == {}
    assert store.rebuild_index() == len(TEXTS) + 1
    with state.reading() as connection:
        assert not sa.inspect(connection).has_table("memory_shingles")
    assert list(found(store, "Cancels")) == ["Cancel"]
    assert found(store, "A corrections") == {}
    assert list(found(store, "Another texts", client=OTHER)) == ["Another text"]


def size_of_index(state: State) -> tuple[int, int]:
    with state.reading() as connection:
        size = sa.func.length(POSTINGS.c.postings)
        total, largest = connection.execute(sa.select(sa.func.sum(size), sa.func.max(size))).one()
    return int(total or 0), int(largest or 0)


def test_a_correction_that_is_approved_while_the_index_is_built_is_in_it_once(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, corrections = put(state, *TEXTS), CorrectionStore(state)
    number = corrections.add(OPERATOR, Correction(PAIR, Entry("A correction", "x"), memory="m"))
    write, begun = State.writing, count()

    def approve_second(self: State) -> AbstractContextManager[sa.Connection]:
        if next(begun) == 1:
            monkeypatch.undo()
            corrections.approve(OPERATOR, [number])
        return write(self)

    monkeypatch.setattr(State, "writing", approve_second)
    store.rebuild_index()
    size = size_of_index(state)
    store.rebuild_index()
    assert size_of_index(state) == size


def test_the_index_shrinks_with_its_memory_and_finds_what_is_left(state: State) -> None:
    store = put(state, *(f"the same words of each text {number}" for number in range(700)))
    size, largest = size_of_index(state)
    assert largest == 4000
    store.add(OWNER, "m", Pair("en", "fr"), [Entry("Keep this too", "x")])
    store.add(OWNER, "m", Pair("de", "en"), [Entry(text, "x") for text in TEXTS])
    store.delete(OWNER, "m", store_module.Wanted("en", "de"))
    assert 0 < size_of_index(state)[0] < size / 50
    assert list(found(store, "Keep this two", pair=Pair("en", "fr"))) == ["Keep this too"]
    store.delete(OWNER, "m", store_module.Wanted())
    assert size_of_index(state) == (0, 0)
