"""Firefox's translator, compiled to WebAssembly, translates a model as Dragoman does: `make clients` installs it."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.real_models import bergamot
from dragoman.export.graph_decoder import GraphDecoder
from dragoman.export.imports.common import ImportOptions
from dragoman.export.imports.marian_files import import_marian_files
from dragoman.serve.runtime.placement import open_sessions
from tests.support.comparisons import write_imported
from tests.support.marian import make_texts, translate_words
from tests.support.marian_student import BIN_FILE, VOCABULARY_FILE, Student, encode, train, write_student

WANTED = ImportOptions("en", "de", max_source_tokens=100, max_target_tokens=100)
TRAINING_STEPS = 1000


def translate_by_firefox(folder: Path, precision: str, texts: Sequence[str]) -> list[str]:
    """Returns greedy translations of Firefox's translator."""
    if not bergamot.is_installed():
        pytest.skip("needs Node and the clients: make clients")
    return bergamot.translate_by_firefox(folder / BIN_FILE, [folder / VOCABULARY_FILE], texts, precision)


def translate(folder: Path, texts: Sequence[str]) -> list[str]:
    """Returns greedy translations of the import, each cut as Firefox's translator cuts it: at twice the source."""
    exportable = import_marian_files(folder, WANTED)
    bundle = write_imported(exportable, folder / "bundle", texts[:3])
    found = GraphDecoder(open_sessions(bundle, "cpu")).translate([tuple(encode(text)) for text in texts])
    cut = [result.target_ids[: 2 * len(encode(text))] for result, text in zip(found, texts, strict=True)]
    return list(map(exportable.tokenizer.decode, cut))


def test_every_text_is_that_of_firefox(tmp_path: Path) -> None:
    folder = write_student(tmp_path / "m", Student(), "float bin")
    texts = make_texts(7, 20)
    found = translate_by_firefox(folder, "float32", texts)
    assert translate(folder, texts) == found
    assert len(set(found)) > len(texts) / 4, "otherwise the translations tell nothing"


def test_a_trained_model_in_8_bits_agrees_with_firefox(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Firefox's translator also rounds activations, with one scale for all of them."""
    if not pytestconfig.getoption("thorough"):
        pytest.skip("trains for minutes: --thorough")
    folder = write_student(tmp_path / "m", train(Student(), TRAINING_STEPS), "bin")
    texts = make_texts(7, 200)
    ours, theirs = translate(folder, texts), translate_by_firefox(folder, "int8shiftAll", texts)
    assert sum(mine == their for mine, their in zip(ours, theirs, strict=True)) >= 0.95 * len(texts)
    assert sum(mine == translate_words(text) for mine, text in zip(ours, texts, strict=True)) >= 0.9 * len(texts)
