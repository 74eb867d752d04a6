"""BLEU as papers report it: published token counts, and the effect of the text preparation."""

import os
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU

from dragoman.model.data.corpus import read_corpus
from dragoman.model.data.multi30k import FOLDER_VARIABLE
from dragoman.model.scoring import measure_as_literature, tokenize_as_literature
from tests.support.cases import cases
from tests.support.paths import ROOT

CASES = cases(__file__)

DATA = Path(os.environ.get(FOLDER_VARIABLE, ROOT.parent / "shared" / "data" / "multi30k"))

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"{FOLDER_VARIABLE} names no folder with Multi30k")

REFERENCES = ["Zwei Hunde rennen über das Feld.", "Ein Mann singt ein „Lied“, laut.", "Das Meer ist heute ruhig."]


@needs_data
@pytest.mark.parametrize(("language", "tokens"), [("de", 12_103), ("en", 12_968)])
def test_the_test_set_of_2016_has_as_many_tokens_as_published(language: str, tokens: int) -> None:
    corpus = read_corpus("multi30k:en-de", "test", DATA)
    lines = corpus.sources if language == "en" else corpus.targets
    assert sum(len(line.split()) for line in tokenize_as_literature(lines, language)) == tokens


@pytest.mark.parametrize(("line", "prepared"), CASES["text is lowercased normalized and tokenized"])
def test_text_is_lowercased_normalized_and_tokenized(line: str, prepared: str) -> None:
    assert tokenize_as_literature([line], "de") == [prepared]


def test_tokens_depend_on_the_language() -> None:
    english, french = (tokenize_as_literature(["l'homme's"], language) for language in ("en", "fr"))
    assert english != french


def test_the_score_is_bleu_of_the_prepared_text() -> None:
    translations = ["Zwei Hunde laufen über das Feld.", *REFERENCES[1:]]
    prepared = [tokenize_as_literature(lines, "de") for lines in (translations, REFERENCES)]
    expected = BLEU(tokenize="none", force=True).corpus_score(prepared[0], [prepared[1]]).score
    assert measure_as_literature(translations, REFERENCES, "de").system.score == expected


def test_the_baseline_is_prepared_too() -> None:
    measured = measure_as_literature(REFERENCES, REFERENCES, "de", [line.upper() for line in REFERENCES])
    assert measured.baseline == measured.system
    assert measured.p_value == 1


def test_the_signature_includes_the_preparation() -> None:
    signature = measure_as_literature(REFERENCES, REFERENCES, "de").signature
    assert "|tok:none|" in signature
    assert "|prepared:lowercase+moses_normalize+moses_tokenize|sacremoses:" in signature
