"""Shortlists of Marian's own models are read as Marian reads them, and damaged ones are rejected by name."""

import gzip
from pathlib import Path

import pytest

from dragoman.export.imports.common import ImportedModelError, ImportOptions
from dragoman.export.imports.marian_files import import_marian_files
from dragoman.export.imports.marian_shortlist import read_marian_shortlist
from dragoman.export.imports.marian_vocabulary import Vocabularies, read_vocabularies
from tests.support.cases import cases
from tests.support.comparisons import write_imported
from tests.support.marian import make_texts
from tests.support.marian_student import PIECES, Student, write_shortlist, write_student

CASES = cases(__file__)


@pytest.fixture
def folder(student: Student, tmp_path: Path) -> Path:
    return write_student(tmp_path / "model", student, "npz")


@pytest.fixture
def vocabularies(folder: Path) -> Vocabularies:
    return read_vocabularies(folder)


def test_a_model_without_a_shortlist_gets_none(folder: Path, vocabularies: Vocabularies) -> None:
    assert read_marian_shortlist(folder, vocabularies, PIECES + 1) is None


def test_a_bundle_has_the_shortlist_with_an_entry_for_each_of_its_tokens(folder: Path, tmp_path: Path) -> None:
    write_shortlist(folder / "lex.50.50.ende.s2t.bin")
    exportable = import_marian_files(folder, ImportOptions("en", "de", max_target_tokens=20))
    bundle = write_imported(exportable, tmp_path / "bundle", make_texts(8, 5))
    spec, found = bundle.manifest.shortlist, bundle.shortlist()
    assert spec is not None
    assert found is not None
    assert (spec.frequent, spec.best, spec.default, spec.sentences) == (2, 3, False, 0)
    assert len(found.offsets) == bundle.manifest.vocabulary_size + 1
    # The vocabulary is shared: a source token is a candidate itself.
    assert found.candidates([5]).tolist() == [0, 1, 5, 34, 35]
    assert found.candidates([bundle.manifest.bos_id]).tolist() == [0, 1]


@pytest.mark.parametrize("name", ["lex.s2t", "lex.s2t.gz"])
def test_lines_of_a_text_are_target_source_and_probability(name: str, folder: Path, vocabularies: Vocabularies) -> None:
    target, source = vocabularies.target, vocabularies._replace(target=(*vocabularies.target[:-1], "other")).source
    lines = f"{target[7]} {source[3]} 0.25\n{target[9]} {source[3]} 0.5\nNULL {source[3]} 1\nunknown {source[3]} 1\n"
    (folder / name).write_bytes(gzip.compress(lines.encode()) if name.endswith(".gz") else lines.encode())
    separate = vocabularies._replace(target=(*target[:-1], "other"))
    found = read_marian_shortlist(folder, separate, PIECES + 1)
    assert found is not None
    assert (found.frequent, found.entry(3).tolist()) == (PIECES, [7, 9])


def test_a_text_keeps_the_most_probable_targets(
    folder: Path, vocabularies: Vocabularies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.export.imports.marian_shortlist.BEST", 2)
    monkeypatch.setattr("dragoman.export.imports.marian_shortlist.FREQUENT", 1)
    pairs = ((7, 0.1), (8, 0.4), (9, 0.2), (6, 0.3))
    lines = [f"{vocabularies.target[token]} {vocabularies.source[3]} {share}\n" for token, share in pairs]
    (folder / "lex.s2t").write_text("".join(lines))
    found = read_marian_shortlist(folder, vocabularies, PIECES + 1)
    assert found is not None
    assert found.candidates([3]).tolist() == [0, 3, 6, 8]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        *CASES["a damaged shortlist is rejected"],
        ("lex.50.50.s2t.bin", "shortlist" * 99, r"lex\.50\.50\.s2t\.bin: magic"),
    ],
)
def test_a_damaged_shortlist_is_rejected(name: str, content: str, problem: str, folder: Path) -> None:
    (folder / name).write_text(content, encoding="latin-1")
    with pytest.raises(ImportedModelError, match=problem):
        import_marian_files(folder, ImportOptions("en", "de"))


def test_a_wrong_checksum_is_rejected(folder: Path) -> None:
    path = write_shortlist(folder / "lex.50.50.s2t.bin")
    content = bytearray(path.read_bytes())
    content[8] ^= 1
    path.write_bytes(content)
    with pytest.raises(ImportedModelError, match="checksum"):
        import_marian_files(folder, ImportOptions("en", "de"))
