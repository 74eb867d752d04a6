"""`dragoman verify`: a right bundle passes, a wrong one is told with the sentence and the step where it goes wrong."""

import re
from pathlib import Path

import pytest

import dragoman
from export.bundle import Bundle
from export.exportable import Exportable
from export.verify import Answer, Comparison, compare
from model.generate import Generated
from model.run import RunFolder
from tests.toy import RANDOM_TEXTS, TEST_SENTENCES, spoil_bundle, toy_test_sentences, write_pairs

EXPECTED = Generated(target_ids=(5, 6, 7), score=-1.0, gaps=(4.0, 3.0, 2.0, 1.0))


@pytest.fixture
def arguments(toy_run: RunFolder, tmp_path: Path) -> list[str]:
    return ["--run", str(toy_run.path), "--data", write_pairs(tmp_path, "test", toy_test_sentences())]


def write_texts(folder: Path, names: str) -> str:
    """Writes the same texts as both sides of a corpus; returns its data specification."""
    paths = [folder / name for name in names.split(",")]
    for path in paths:
        path.write_text("".join(f"{text}\n" for text in RANDOM_TEXTS), encoding="utf-8")
    return f"files:{paths[0]},{paths[1]}"


def refusal(*arguments: str) -> str:
    """Returns the line that a verification ends with."""
    with pytest.raises(SystemExit) as ended:
        dragoman.run("verify", list(arguments))
    assert isinstance(ended.value.code, str)
    return ended.value.code


def test_every_translation_of_a_right_bundle_is_identical(
    toy_bundle: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    dragoman.run("verify", [str(toy_bundle), *arguments])
    output = capsys.readouterr().out
    found = re.fullmatch(r"(\d+) of (\d+) translations are token-identical, scores within (.*)\n", output)
    assert found is not None
    assert found[1] == found[2] == str(TEST_SENTENCES)
    assert float(found[3]) < 1e-4


def test_a_wrong_bundle_fails_and_tells_steps_and_gaps(
    toy_bundle: Path, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = spoil_bundle(toy_bundle, tmp_path / "wrong")
    message = refusal(str(wrong), *arguments, "--sentences", "100")
    assert message == "dragoman verify: fewer than 99.9% are identical"
    *differences, summary = capsys.readouterr().out.splitlines()
    assert differences
    sentences = toy_test_sentences()[:100]
    for line in differences:
        found = re.fullmatch(r"differs from step (\d+), where the best logit led by (\d\.\d\de[+-]\d\d): (.*)", line)
        assert found is not None
        assert found[3] in sentences
    assert summary.startswith(f"{100 - len(differences)} of 100 translations are token-identical")


def test_the_share_that_has_to_be_identical_is_an_option(
    toy_bundle: Path, arguments: list[str], tmp_path: Path
) -> None:
    wrong = spoil_bundle(toy_bundle, tmp_path / "wrong")
    dragoman.run("verify", [str(wrong), *arguments, "--sentences", "20", "--minimum-identical", "0"])


@pytest.mark.parametrize(
    ("target_ids", "step", "gap"),
    [
        ((9, 6, 7), 0, "4.00e+00"),
        ((5, 6, 9), 2, "2.00e+00"),
        ((5, 6), 2, "2.00e+00"),
        ((5, 6, 7, 8), 3, "1.00e+00"),
        ((), 0, "4.00e+00"),
    ],
)
def test_a_difference_is_told_from_its_first_step_on(target_ids: tuple[int, ...], step: int, gap: str) -> None:
    comparison = Comparison("a b c", EXPECTED, Answer(target_ids, -1.0))
    assert not comparison.identical
    assert comparison.describe() == f"differs from step {step}, where the best logit led by {gap}: a b c"


def test_scores_are_compared_where_tokens_are_identical() -> None:
    assert Comparison("", EXPECTED, Answer((5, 6, 7), -1.5)).score_error == 0.5
    assert Comparison("", EXPECTED, Answer((5, 6), -1.5)).score_error == 0.0


@pytest.mark.parametrize("names", ["test.en,test.de", "test.de,test.en"])
def test_either_direction_of_a_bundle_is_verified_with_its_prefix(
    two_way_run: RunFolder, two_way_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], names: str
) -> None:
    data = write_texts(tmp_path, names)
    dragoman.run("verify", [str(two_way_bundle), "--run", str(two_way_run.path), "--data", data])
    assert capsys.readouterr().out.startswith(f"{len(RANDOM_TEXTS)} of {len(RANDOM_TEXTS)} translations")


def test_data_of_another_direction_are_refused(two_way_run: RunFolder, two_way_bundle: Path, tmp_path: Path) -> None:
    data = write_texts(tmp_path, "test.en,test.fr")
    message = refusal(str(two_way_bundle), "--run", str(two_way_run.path), "--data", data)
    assert message == f"dragoman verify: data: {data}: languages are en-fr, expected en-de or de-en"


def test_another_prefix_gives_another_translation(two_way_run: RunFolder, two_way_bundle: Path) -> None:
    """Otherwise the tests above show nothing."""
    bundle, exportable = Bundle.open(two_way_bundle), Exportable.of_run(two_way_run.load())
    there, back = (
        [each.actual.target_ids for each in compare(bundle, exportable, RANDOM_TEXTS, direction.source_prefix)]
        for direction in bundle.manifest.directions
    )
    assert there != back


def test_sentences_that_are_too_long_are_left_out(
    toy_bundle: Path, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_pairs(tmp_path, "long", ("bird moon", " ".join(["bird"] * 32)))
    dragoman.run("verify", [str(toy_bundle), *arguments[:2], "--data", data])
    assert capsys.readouterr().out.startswith("1 of 1 translations")


def test_when_all_are_too_long_nothing_is_proved(toy_bundle: Path, arguments: list[str], tmp_path: Path) -> None:
    data = write_pairs(tmp_path, "long", (" ".join(["bird"] * 32),))
    message = refusal(str(toy_bundle), *arguments[:2], "--data", data)
    assert message == "dragoman verify: data: none of 1 sentences is short enough for the model"


def test_what_cannot_be_read_is_told(toy_bundle: Path, arguments: list[str], tmp_path: Path) -> None:
    assert refusal(str(tmp_path), *arguments).startswith(f"dragoman verify: {tmp_path}/manifest.json: ")
    assert "holds no checkpoint" in refusal(str(toy_bundle), "--run", str(tmp_path), *arguments[2:])
    assert "is not a data specification" in refusal(str(toy_bundle), *arguments[:2], "--data", "none")


def test_an_unknown_part_of_the_data_is_refused(
    toy_bundle: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        dragoman.run("verify", [str(toy_bundle), *arguments, "--split", "tset"])
    assert ended.value.code == 2
    assert "--split" in capsys.readouterr().err
