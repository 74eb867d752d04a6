"""The included bundles are complete, described and small, and are the default of `dragoman serve`."""

import re
from pathlib import Path

import pytest

from dragoman.serve.bundle.bundle import Bundle
from tests.support.paths import ROOT
from tests.support.served import serve

BUNDLES = ROOT / "bundles"
SHIPPED = sorted(path.parent for path in BUNDLES.glob("*/manifest.json"))
MAX_BYTES = 24_000_000
LANGUAGES = ("cs", "de", "en", "fr")


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.name)
def test_an_included_bundle_is_complete_named_as_its_folder_and_described(folder: Path) -> None:
    manifest = Bundle.open(folder).manifest
    assert (manifest.name, manifest.description) == (folder.name, "captions of photographs")


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.name)
def test_the_card_of_a_bundle_has_recipe_commit_data_scores_and_license(folder: Path) -> None:
    card = (folder / "README.md").read_text()
    recipes = re.findall(r"\.\./\.\./model/recipes/([\w-]+\.yaml)", card)
    assert recipes
    assert all((BUNDLES.parent / "model" / "recipes" / recipe).is_file() for recipe in recipes)
    assert re.search(r"at commit [0-9a-f]{7,40}\b", card)
    assert "dragoman evaluate " in card
    assert "nrefs:1" in card
    assert "non-commercial research" in card


def test_the_included_bundles_are_small_and_documented() -> None:
    assert {folder.name for folder in SHIPPED} == {"multi30k", "multi30k-en-de"}
    files = [path for folder in SHIPPED for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MAX_BYTES
    overview = (BUNDLES / "README.md").read_text()
    assert all(f"]({folder.name}/README.md)" in overview for folder in SHIPPED)


def test_a_server_without_arguments_translates_in_twelve_directions() -> None:
    with serve(None) as server:
        status, body = server.post({"text": "Two dogs run.", "source_language": "en", "target_language": "de"})
        assert (status, "Zwei Hunde" in body) == (200, True)
        answers = {
            (source, target): server.post(
                {"text": "Two dogs run.", "source_language": source, "target_language": target}
            )[0]
            for source in LANGUAGES
            for target in LANGUAGES
            if source != target
        }
        assert set(answers.values()) == {200}
        assert len(answers) == 12
