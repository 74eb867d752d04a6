"""`dragoman consensus`: the translation of each line that is most like the others."""

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu import sentence_bleu

from dragoman import command_line
from dragoman.model.consensus import choose

WORDS = ("ein", "Hund", "läuft", "rennt", ".")
SENTENCES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)


def expected_bleu(candidate: str, translations: list[str]) -> float:
    bleu = partial(sentence_bleu, candidate, use_effective_order=True)
    scores = [100.0 if candidate == other else bleu([other]).score for other in translations]
    return sum(scores) / len(scores)


@given(st.lists(SENTENCES, min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_no_translation_is_more_like_the_others_than_the_chosen_one(translations: list[str]) -> None:
    chosen = choose(translations)
    assert chosen in translations
    best = max(expected_bleu(candidate, translations) for candidate in translations)
    assert expected_bleu(chosen, translations) == pytest.approx(best)


def test_of_equally_good_translations_the_first_is_chosen() -> None:
    assert choose(["ein Hund läuft .", "eine Katze schläft !"]) == "ein Hund läuft ."


def test_chinese_translations_are_alike_if_they_share_characters(tmp_path: Path) -> None:
    translations = ["一个男人坐着。", "一只狗在草地上跑。", "一只狗在草地上奔跑。"]
    paths = [write(tmp_path / f"{number}.zh", [line]) for number, line in enumerate(translations)]
    output = tmp_path / "chosen.zh"
    command_line.run("consensus", [*paths, "--language", "zh", "--output", str(output)])
    assert output.read_text(encoding="utf-8") in {f"{line}\n" for line in translations[1:]}


def write(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def test_each_line_is_chosen_from_its_own_line_of_each_file(tmp_path: Path) -> None:
    columns = [["ein Hund läuft .", "zwei"], ["ein Hund läuft .", "drei"], ["Hund", "drei"]]
    paths = [write(tmp_path / f"{number}.de", lines) for number, lines in enumerate(columns)]
    output = tmp_path / "chosen.de"
    command_line.run("consensus", [*paths, "--output", str(output)])
    assert output.read_text(encoding="utf-8") == "ein Hund läuft .\ndrei\n"


@pytest.mark.parametrize("output", [".", "no-such/chosen.de"])
def test_an_output_that_cannot_be_written_is_refused_first(tmp_path: Path, output: str) -> None:
    with pytest.raises(SystemExit, match=r"^dragoman consensus: output: .*: expected a file in an existing folder$"):
        command_line.run("consensus", ["no-such.de", "neither.de", "--output", str(tmp_path / output)])


@pytest.mark.parametrize(("first", "second"), [(1, 2), (3, 2)])
def test_files_of_different_lengths_are_refused(tmp_path: Path, first: int, second: int) -> None:
    paths = [write(tmp_path / f"{i}.de", ["x"] * lines) for i, lines in enumerate((first, second))]
    with pytest.raises(SystemExit, match=rf"1\.de: expected {first} lines, as .*0\.de has, got {second}"):
        command_line.run("consensus", [*paths, "--output", str(tmp_path / "chosen.de")])
    assert not (tmp_path / "chosen.de").exists()
