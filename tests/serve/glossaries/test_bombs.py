"""Glossary bombs: each is read or refused in memory that is proportional to the file, and in one pass."""

import gc
import time
import tracemalloc
from collections.abc import Iterator

import pytest

from dragoman.serve.glossaries.files import MAX_COLUMNS, MAX_LINES, read_entries
from dragoman.serve.glossaries.reader import GlossaryReader
from dragoman.serve.protect.terms.entry import MAX_ENTRIES, MAX_TARGETS, EntryError
from dragoman.serve.sandbox.sandbox import Sandbox
from tests.support.attacks.glossaries import Bomb, glossary_bombs

SEEDS = range(2)
SIZE_BYTES = 50_000
# Per byte of a file: what an entry of two short terms takes.
MAX_BYTES_PER_BYTE = 40
NEVER_SECONDS = 600.0


@pytest.fixture(params=SEEDS)
def bombs(request: pytest.FixtureRequest) -> list[Bomb]:
    return list(glossary_bombs(request.param, SIZE_BYTES))


def read(bomb: Bomb) -> None:
    entries_format, text = bomb
    try:
        read_entries(text, entries_format, "en", "de")
    except EntryError:
        return


@pytest.fixture
def traced() -> Iterator[None]:
    gc.collect()
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
def test_a_bomb_takes_memory_in_proportion_to_its_size(bombs: list[Bomb]) -> None:
    for bomb in bombs:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        read(bomb)
        _, peak = tracemalloc.get_traced_memory()
        assert peak - before < MAX_BYTES_PER_BYTE * len(bomb[1]), bomb[1][:100]


def test_a_term_in_many_pieces_is_read_in_linear_time() -> None:
    """Text outside of terms is not kept, and the pieces of a term are joined once."""

    def calls(size_bytes: int) -> float:
        texts = [text for entries_format, text in glossary_bombs(0, size_bytes) if entries_format == "tbx"]
        begun = time.thread_time()
        for text in texts:
            read(("tbx", text))
        return time.thread_time() - begun

    calls(10_000)
    # Quadratic work would take 400 times as long.
    assert calls(1_000_000) < 100 * max(calls(50_000), 0.005)


@pytest.mark.parametrize(
    ("text", "problem"),
    [("\t" * MAX_COLUMNS, f"{MAX_COLUMNS + 1} columns"), ("\n" * (MAX_LINES + 1), f"at most {MAX_LINES} lines")],
)
def test_lines_and_columns_have_a_bound(text: str, problem: str) -> None:
    with pytest.raises(EntryError, match=problem):
        read_entries(text, "tsv", "en", "de")


def terms(language: str, count: int) -> str:
    inner = "".join(f"<tig><term>{language}{number}</term></tig>" for number in range(count))
    return f"<langSet xml:lang='{language}'>{inner}</langSet>"


@pytest.mark.parametrize("order", [("en", "de"), ("de", "en")])
def test_terms_times_translations_are_counted_before_they_are_made(order: tuple[str, str]) -> None:
    counts = {"en": 1000, "de": MAX_TARGETS + 1}
    concept = "".join(terms(language, counts[language]) for language in order)
    with pytest.raises(EntryError, match=f"{MAX_TARGETS + 1} targets"):
        read_entries(f"<t><termEntry>{concept}</termEntry></t>", "tbx", "en", "de")


def test_the_bound_of_entries_counts_all_concepts() -> None:
    concept = "<termEntry>" + terms("en", MAX_ENTRIES // 2 + 1) + terms("de", 1) + "</termEntry>"
    with pytest.raises(EntryError, match=f"at most {MAX_ENTRIES} entries"):
        read_entries(f"<t>{concept * 2}</t>", "tbx", "en", "de")


@pytest.mark.anyio
async def test_the_sandbox_reads_or_refuses_each_bomb(bombs: list[Bomb]) -> None:
    sandbox = Sandbox()
    reader = GlossaryReader(sandbox)
    try:
        for entries_format, text in bombs:
            try:
                expected: object = read_entries(text, entries_format, "en", "de")
            except EntryError as error:
                expected = str(error)
            try:
                found: object = await reader.read(text, entries_format, "en", "de", time.monotonic() + NEVER_SECONDS)
            except EntryError as error:
                found = str(error)
            assert found == expected
    finally:
        sandbox.close()
