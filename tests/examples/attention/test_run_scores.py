"""Scores are read from the file of an evaluation; its other fields are ignored."""

import json
from pathlib import Path

import pytest

from examples.attention.runs import ScoresError, read_scores
from model.config import Direction

GERMAN = Direction(source="en", target="de")


def write_scores(path: Path, *targets: str) -> Path:
    system = {"bleu": 36.4, "bleu_signature": "nrefs:1", "chrf": 61.2, "exact": 0.1}
    directions = [{"source_language": "en", "target_language": target, "system": system} for target in targets]
    path.write_text(json.dumps({"versions": {"torch": "2"}, "directions": directions}), encoding="utf-8")
    return path


def test_scores_are_those_of_the_direction(tmp_path: Path) -> None:
    scores = read_scores(write_scores(tmp_path / "run.json", "fr", "de"), GERMAN)
    assert (scores.bleu, scores.chrf) == (36.4, 61.2)


def test_scores_of_other_directions_do_not_count(tmp_path: Path) -> None:
    with pytest.raises(ScoresError, match=r"run\.json: .*en-de"):
        read_scores(write_scores(tmp_path / "run.json", "fr"), GERMAN)


@pytest.mark.parametrize("content", [None, "", "[]", '{"directions": [{"bleu": 1}]}'])
def test_a_file_that_no_evaluation_wrote_is_an_error(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "run.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(ScoresError, match=r"run\.json: expected "):
        read_scores(path, GERMAN)
