"""The models to prove, and the sentences that they translate, with reference translations."""

import csv
from pathlib import Path
from typing import Literal

import yaml
from pydantic import TypeAdapter

from dragoman.model.config import Section

MODELS = Path(__file__).with_name("models.yaml")
SENTENCES = Path(__file__).with_name("sentences.tsv")
SOURCE = "en"


class RealModel(Section):
    """A public model; `models.yaml` describes the fields. `chrf` is 0 to 100, None: any."""

    kind: str
    name: str
    target: str
    engine: Literal["bergamot", "ctranslate2", "transformers"]
    chrf: float | None
    large: bool = False


def read_models(path: Path) -> list[RealModel]:
    """Returns the models of a YAML file; raises ValidationError if it has another form."""
    return TypeAdapter(list[RealModel]).validate_python(yaml.safe_load(path.read_text(encoding="utf-8")))


def read_sentences() -> dict[str, list[str]]:
    """Returns the sentences by language, line by line translations of each other."""
    with SENTENCES.open(encoding="utf-8", newline="") as file:
        languages, *rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    return {language: list(column) for language, column in zip(languages, zip(*rows, strict=True), strict=True)}
