"""The indexes in memory: bounded in bytes, in total and per client."""

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from dragoman.serve.glossaries import index_cache
from dragoman.serve.glossaries.index_cache import IndexCache
from dragoman.serve.protect.terms.entry import Entry
from dragoman.serve.protect.terms.matching import TermIndex


def index(entries: int = 100) -> TermIndex:
    return TermIndex(Entry(f"Term {number}", (f"Wort {number}",)) for number in range(entries))


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> int:
    """The bound of a client, four indexes; in total, it is eight."""
    client_bytes = 4 * index().size_bytes
    monkeypatch.setattr(index_cache, "MAX_CLIENT_BYTES", client_bytes)
    monkeypatch.setattr(index_cache, "MAX_INDEX_BYTES", 2 * client_bytes)
    return client_bytes


def fill(cache: IndexCache, client: str, count: int) -> list[str]:
    """Uses dictionaries; returns their revisions."""
    revisions = [f"{client} {number}" for number in range(count)]
    for revision in revisions:
        cache.find(revision, client, index)
    return revisions


def kept(cache: IndexCache, revisions: list[str]) -> list[str]:
    """Returns the revisions whose index is in memory; makes none of the others."""
    found = []
    for revision in revisions:
        try:
            cache.find(revision, "", lambda: 1 / 0)  # type: ignore[arg-type, return-value]
        except ZeroDivisionError:
            continue
        found.append(revision)
    return found


def test_an_index_is_made_once() -> None:
    cache = IndexCache()
    made = cache.find("revision", "client", index)
    assert cache.find("revision", "other", index) is made
    assert cache.size_bytes == made.size_bytes


def test_a_client_keeps_the_indexes_that_it_used_last(bound: int) -> None:
    cache = IndexCache()
    revisions = fill(cache, "client", 4)
    cache.find(revisions[0], "client", index)
    cache.find("new", "client", index)
    assert kept(cache, [*revisions, "new"]) == [revisions[0], *revisions[2:], "new"]
    assert cache.size_bytes <= bound


def test_a_client_with_many_indexes_takes_none_of_another_one(bound: int) -> None:
    cache = IndexCache()
    revisions = fill(cache, "client", 2)
    fill(cache, "other", 50)
    fill(cache, "third", 50)
    assert kept(cache, revisions) == revisions
    assert cache.size_bytes <= 2 * bound


def test_an_index_beyond_the_bound_is_used_and_not_kept(bound: int) -> None:
    cache = IndexCache()
    assert cache.find("revision", "client", lambda: index(1000)).size_bytes > bound
    assert cache.size_bytes == 0


@pytest.mark.parametrize(
    "entry",
    [
        lambda number: Entry(f"word{number}", (f"Wort{number}",)),
        lambda number: Entry(f"Term {number % 500} of {number}", (f"Begriff {number}", f"Begriffe {number}")),
        lambda number: Entry(f"\u0441\u043b\u043e\u0432\u043e{number}", (f"\u5b57{number}",), match_case=True),
        lambda number: Entry(f"{number} {'long ' * 40}", tuple(f"{'y' * 200}{form}" for form in range(8))),
    ],
)
def test_the_size_of_an_index_is_that_of_its_memory(entry: Callable[[int], Entry]) -> None:
    gc.collect()
    tracemalloc.start()
    made = TermIndex(entry(number) for number in range(3000))
    gc.collect()
    allocated_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert allocated_bytes / 1.2 < made.size_bytes < 1.2 * allocated_bytes
