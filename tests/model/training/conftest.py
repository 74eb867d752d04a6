"""The command line of a short training."""

import pytest
import yaml

from tests.support.toy import toy_sentences, write_pairs
from tests.support.train_command import RECIPE


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command line of a short run, without its folder."""
    folder = tmp_path_factory.mktemp("data")
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    return ["--data", write_pairs(folder, "train", toy_sentences()[:300]), "--recipe", str(recipe)]
