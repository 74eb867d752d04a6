"""The scores of a run, read from the file that `dragoman evaluate RUN --json FILE` wrote.

Only what is needed is read of it: whatever else the file holds is ignored. Called by `dragoman attention`.
"""

from pathlib import Path

from pydantic import BaseModel, ValidationError

from model.config import Direction


class ScoresError(Exception):
    """The file is not one that `dragoman evaluate` wrote, or lacks the direction; the message names it."""


class Scores(BaseModel):
    """BLEU and chrF of sacreBLEU, 0 to 100."""

    bleu: float
    chrf: float


class _Evaluation(BaseModel):
    source_language: str
    target_language: str
    system: Scores


class _Document(BaseModel):
    directions: list[_Evaluation]


def read_scores(path: Path, direction: Direction) -> Scores:
    """Returns the scores that the file has for a direction.

    Raises:
        ScoresError: if it has none.
    """
    try:
        document = _Document.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ScoresError(f"{path}: expected a file written by `dragoman evaluate RUN --json FILE`: {error}") from error
    for evaluation in document.directions:
        if (evaluation.source_language, evaluation.target_language) == (direction.source, direction.target):
            return evaluation.system
    raise ScoresError(f"{path}: holds no scores for {direction}")
