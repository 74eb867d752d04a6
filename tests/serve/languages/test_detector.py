"""Detection of languages by the model of py3langid, limited to candidates."""

import subprocess
import sys

import pytest

from dragoman.serve.languages.detector import MAX_CHARACTERS, MIN_CONFIDENCE, detect_language
from tests.support.cases import cases

CANDIDATES = ("cs", "de", "en", "fr")
SENTENCES: dict[str, list[str]] = cases(__file__)["sentences of one meaning"]


@pytest.mark.parametrize(("code", "sentence"), [(code, item) for code, few in SENTENCES.items() for item in few])
def test_a_sentence_has_its_language_with_high_confidence(code: str, sentence: str) -> None:
    (best, confidence), *others = detect_language(sentence, CANDIDATES)
    assert best == code
    assert confidence > 0.9
    assert confidence + sum(other for _, other in others) <= 1.000001


@pytest.mark.parametrize("text", ["dog", "Hund", "alpha beta.", "日本語", "def f(x): return x + 1"])
def test_a_word_or_text_of_another_kind_has_low_confidence(text: str) -> None:
    found = detect_language(text, CANDIDATES)
    assert found[0][1] < 0.7
    assert [result for _, result in found] == sorted((result for _, result in found), reverse=True)
    assert found[-1][1] >= MIN_CONFIDENCE


@pytest.mark.parametrize("text", ["", " \n\t", "😀👍🏽", "123", "12:30 - 14:00", "?!", "\u200b", "a", "xyzzy qqq"])
def test_a_text_without_evidence_has_no_language(text: str) -> None:
    assert detect_language(text, CANDIDATES) == []


def test_only_candidates_are_found() -> None:
    for code, (sentence, *_) in SENTENCES.items():
        others = {candidate for candidate in CANDIDATES if candidate != code}
        assert {found for found, _ in detect_language(sentence, others)} <= others
        assert detect_language(sentence, [code])[0][0] == code
    assert detect_language(SENTENCES["en"][0], ["xx", "en"])[0][0] == "en"
    assert detect_language(SENTENCES["en"][0], ["xx"]) == detect_language(SENTENCES["en"][0], []) == []


def test_candidates_may_have_the_codes_of_models() -> None:
    portuguese = "Dois rapazes consertam uma bicicleta em frente a uma loja."
    assert detect_language(portuguese, ["en", "pb"])[0][0] == "pb"
    assert detect_language(portuguese, ["en", "pb", "pt"])[0][0] == "pt"
    assert detect_language("两个年轻人在商店前修理自行车。", ["en", "zh", "zt"])[0][0] == "zh"


def test_only_the_start_of_a_text_is_read() -> None:
    english = " ".join(SENTENCES["en"]) + " "
    start = english * (MAX_CHARACTERS // len(english) + 1)
    assert detect_language(start + " ".join(SENTENCES["de"]) * 50, CANDIDATES) == detect_language(start, CANDIDATES)


def test_the_model_is_loaded_only_to_detect() -> None:
    program = (
        "import sys, dragoman.serve.service\n"
        "assert 'py3langid' not in sys.modules\n"
        "from dragoman.serve.languages import detector\n"
        "assert not detector.is_loaded() and detector.detect_language('12', ['en']) == []\n"
        "assert 'py3langid' not in sys.modules and not detector.is_loaded()\n"
        "assert detector.detect_language('A man is here.', ['en']) and detector.is_loaded()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
