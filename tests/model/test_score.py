"""Scores equal sacreBLEU's on the raw text."""

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from dragoman.model.scoring import bleu_metric, score
from tests.support.cases import cases

CASES = cases(__file__)

REFERENCES = ["Two dogs run over the green field.", "A man in a red coat sings a song.", "The sea is calm today."]
TRANSLATIONS = [REFERENCES[0], "A man in a coat sings a red song.", "the sea is calm today."]


def test_scores_are_those_of_sacrebleu() -> None:
    quality = score(TRANSLATIONS, REFERENCES)
    assert quality.bleu == BLEU().corpus_score(TRANSLATIONS, [REFERENCES]).score
    assert quality.chrf == CHRF().corpus_score(TRANSLATIONS, [REFERENCES]).score
    assert 0 < quality.bleu < 100


@pytest.mark.parametrize(("language", "tokenizer", "lines"), CASES["bleu takes the tokens of the target language"])
def test_bleu_takes_the_tokens_of_the_target_language(language: str, tokenizer: str, lines: tuple[str, str]) -> None:
    reference, translation = lines
    quality = score([translation], [reference], [language])
    assert quality.bleu == BLEU(tokenize=tokenizer).corpus_score([translation], [[reference]]).score
    assert 40 < quality.bleu < 100
    metric = bleu_metric(language)
    metric.corpus_score([translation], [[reference]])
    assert f"tok:{tokenizer}|" in str(metric.get_signature())


def test_each_line_of_a_set_has_the_tokens_of_its_language() -> None:
    """So the BLEU of several languages counts as one corpus; omitted languages separate words by blanks."""
    reference, translation = "二匹の犬が緑の野原を走っている。", "二匹の犬が野原を走っている。"
    apart = " ".join(translation), " ".join(reference)
    mixed = score([*TRANSLATIONS, translation], [*REFERENCES, reference], ["en"] * len(REFERENCES) + ["ja"])
    assert mixed.bleu == BLEU().corpus_score([*TRANSLATIONS, apart[0]], [[*REFERENCES, apart[1]]]).score
    assert score(TRANSLATIONS, REFERENCES, ["en"] * len(REFERENCES)) == score(TRANSLATIONS, REFERENCES)


def test_a_line_is_exact_if_every_character_is_right() -> None:
    assert score(TRANSLATIONS, REFERENCES).exact == pytest.approx(1 / 3)


def test_the_length_ratio_counts_punctuation_as_tokens() -> None:
    assert score(["One two."], ["One two three, four."]).length_ratio == pytest.approx(3 / 6)
