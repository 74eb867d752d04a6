"""`dragoman score`: sacreBLEU's numbers on the text as it is, and the share of exact lines."""

import gzip
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

import dragoman
from model.score import score

REFERENCES = ["Two dogs run over the green field.", "A man in a red coat sings a song.", "The sea is calm today."]
TRANSLATIONS = [REFERENCES[0], "A man in a coat sings a red song.", "the sea is calm today."]


def write(path: Path, lines: list[str]) -> str:
    text = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return str(path)


def refusal(*arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        dragoman.run("score", list(arguments))
    assert isinstance(ended.value.code, str)
    return ended.value.code


def test_identical_text_has_the_highest_scores() -> None:
    quality = score(REFERENCES, REFERENCES)
    assert [quality.bleu, quality.chrf] == pytest.approx([100, 100])
    assert quality.exact == 1


def test_text_without_a_common_word_has_no_bleu() -> None:
    quality = score(["xxxx yyyy zzzz qqqq"] * 3, REFERENCES)
    assert quality.bleu == pytest.approx(0, abs=0.1)
    assert quality.exact == 0


def test_scores_are_those_of_sacrebleu() -> None:
    quality = score(TRANSLATIONS, REFERENCES)
    assert quality.bleu == BLEU().corpus_score(TRANSLATIONS, [REFERENCES]).score
    assert quality.chrf == CHRF().corpus_score(TRANSLATIONS, [REFERENCES]).score
    assert 0 < quality.bleu < 100
    assert "case:mixed" in quality.bleu_signature
    assert "tok:13a" in quality.bleu_signature


def test_a_line_is_exact_if_every_character_is_right() -> None:
    assert score(TRANSLATIONS, REFERENCES).exact == pytest.approx(1 / 3)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_every_metric_is_printed_on_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str) -> None:
    ours, theirs = write(tmp_path / f"ours{suffix}", TRANSLATIONS), write(tmp_path / "theirs", REFERENCES)
    dragoman.run("score", [ours, theirs])
    bleu, chrf, exact = capsys.readouterr().out.splitlines()
    quality = score(TRANSLATIONS, REFERENCES)
    assert bleu == f"BLEU {quality.bleu:.2f}  {quality.bleu_signature}"
    assert chrf == f"chrF {quality.chrf:.2f}  {quality.chrf_signature}"
    assert exact == "exact 33.33%  of 3 lines"


def test_files_of_different_length_are_refused(tmp_path: Path) -> None:
    ours, theirs = write(tmp_path / "ours", TRANSLATIONS), write(tmp_path / "theirs", REFERENCES[:2])
    assert refusal(ours, theirs) == "dragoman score: references: 2 lines, expected 3 as in translations"


def test_empty_files_are_refused(tmp_path: Path) -> None:
    ours, theirs = write(tmp_path / "ours", []), write(tmp_path / "theirs", [])
    assert refusal(ours, theirs) == "dragoman score: references: no line, expected at least one"


def test_an_empty_translation_counts_as_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = write(tmp_path / "ours", ["", *REFERENCES[1:]]), write(tmp_path / "theirs", REFERENCES)
    dragoman.run("score", [ours, theirs])
    assert "exact 66.67%  of 3 lines" in capsys.readouterr().out


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    ours = write(tmp_path / "ours", TRANSLATIONS)
    assert refusal(ours, str(tmp_path / "theirs")).startswith(f"dragoman score: {tmp_path / 'theirs'}: cannot be read")


@pytest.mark.parametrize(("minimum", "passes"), [("0.3", True), ("0.34", False), ("1", False)])
def test_too_few_exact_lines_fail(tmp_path: Path, minimum: str, passes: bool) -> None:
    arguments = [write(tmp_path / "ours", TRANSLATIONS), write(tmp_path / "theirs", REFERENCES)]
    arguments += ["--minimum-exact", minimum]
    if passes:
        dragoman.run("score", arguments)
    else:
        assert refusal(*arguments) == f"dragoman score: fewer than {float(minimum):.2%} are exact"
