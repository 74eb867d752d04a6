"""An Argos package with merges of byte pair encoding reads words as Argos Translate and translates like CTranslate2."""

from pathlib import Path

import pytest

from benchmarks.systems.ctranslate2_system import spec_of
from dragoman.export.imports.common import ImportedModelError, ImportOptions
from dragoman.export.imports.ctranslate2 import import_ctranslate2
from dragoman.export.verify.sync_engine import SyncEngine
from dragoman.model.tokenizer.word_tokenizer import WordTokenizer
from dragoman.serve.bundle.tokenizer import load_tokenizer
from dragoman.serve.runtime.sessions import load_sessions
from dragoman.serve.scheduler.sequence import SequenceSpec
from dragoman.serve.search.options import SearchOptions
from tests.support.comparisons import ignore, write_imported
from tests.support.ctranslate2_models import translate, write_model, write_package
from tests.support.toy import random_model

MERGES = b"#version: 0.2\nh o\nho u\nhou s\nr i\n"
PIECES = ("<blank>", "<unk>", "<s>", "</s>", "hous@@", "e", "ri@@", "v@@", "r", "e@@", ".")
TEXT, UNITS = "house river.", ["hous@@", "e", "ri@@", "v@@", "e@@", "r", "."]
LIMIT = 20


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder of CTranslate2 without a tokenizer."""
    network = random_model(7, len(PIECES), d_model=64, heads=4, max_target_tokens=LIMIT)
    return write_model(tmp_path / "m", spec_of(network, PIECES, add_source_eos=False))


def test_a_package_translates_like_argos_translate(model: Path, tmp_path: Path) -> None:
    path = write_package(tmp_path / "en_de.argosmodel", model, MERGES, "bpe.model")
    exportable = import_ctranslate2(path, ImportOptions(max_target_tokens=LIMIT))
    assert isinstance(exportable.tokenizer, WordTokenizer)
    assert exportable.tokenizer.languages == ("en", "de")
    ids = exportable.tokenizer.encode(TEXT)
    assert [PIECES[number] for number in ids] == UNITS
    bundle = write_imported(exportable, tmp_path / "bundle", ["house river ."])
    assert load_tokenizer(bundle).encode(TEXT) == ids
    engine = SyncEngine(load_sessions(bundle, threads=1), 1)
    (found,) = engine.translate([SequenceSpec(tuple(ids), SearchOptions(max_target_tokens=LIMIT))], 1, ignore)
    assert [[PIECES[number] for number in found.target_ids]] == translate(model, [UNITS], 1, LIMIT)


def test_merges_need_the_languages_of_a_model(model: Path) -> None:
    (model / "bpe.model").write_bytes(MERGES)
    problem = r"bpe.model: source-language, target-language: expected both languages"
    with pytest.raises(ImportedModelError, match=problem):
        import_ctranslate2(model, ImportOptions("en"))


def test_damaged_merges_are_refused_by_their_line(model: Path) -> None:
    (model / "bpe.model").write_bytes(MERGES + b"a b c\n")
    with pytest.raises(ImportedModelError, match="merges: line 6: expected two symbols"):
        import_ctranslate2(model, ImportOptions("en", "de"))
