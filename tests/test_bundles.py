"""The bundles of the checkout are complete, described and small; `dragoman serve` serves the included one."""

import re
from pathlib import Path

import pytest
import yaml

from dragoman.serve.bundle.bundle import Bundle
from tests.support.paths import ROOT
from tests.support.served import serve

BUNDLES = ROOT / "bundles"
CHECKED_IN = sorted(path.parent for path in BUNDLES.glob("*/manifest.json"))
INCLUDED = BUNDLES / "included"
MAX_BYTES = 24_000_000
MAX_INCLUDED_BYTES = 12_000_000
FOREIGN = ("cs", "de", "fr")
PURPOSES = {
    "included": "everyday sentences and messages of programs",
    "multi30k": "captions of photographs",
    "multi30k-en-de": "captions of photographs",
}


@pytest.mark.parametrize("folder", CHECKED_IN, ids=lambda folder: folder.name)
def test_a_bundle_is_complete_named_as_its_folder_and_described(folder: Path) -> None:
    manifest = Bundle.open(folder).manifest
    assert (manifest.name, manifest.description) == (folder.name, PURPOSES[folder.name])


@pytest.mark.parametrize("folder", CHECKED_IN, ids=lambda folder: folder.name)
def test_the_card_of_a_bundle_has_recipe_commit_data_scores_and_license(folder: Path) -> None:
    card = (folder / "README.md").read_text()
    recipes = re.findall(r"\.\./\.\./model/recipes/([\w-]+\.yaml)", card)
    assert recipes
    assert all((BUNDLES.parent / "model" / "recipes" / recipe).is_file() for recipe in recipes)
    assert re.search(r"at commit [0-9a-f]{7,40}\b", card)
    assert "dragoman evaluate " in card
    assert "nrefs:1" in card
    assert (Bundle.open(folder).manifest.license or "non-commercial research") in card


def test_the_bundles_are_small_and_documented() -> None:
    assert {folder.name for folder in CHECKED_IN} == PURPOSES.keys()
    assert sum(path.stat().st_size for path in BUNDLES.rglob("*") if path.is_file()) <= MAX_BYTES
    assert sum(path.stat().st_size for path in INCLUDED.iterdir()) <= MAX_INCLUDED_BYTES
    overview = (BUNDLES / "README.md").read_text()
    assert all(f"]({folder.name}/README.md)" in overview for folder in CHECKED_IN)


def test_the_card_of_the_included_model_names_version_and_hash_of_each_package_and_its_license() -> None:
    card = (INCLUDED / "README.md").read_text()
    sources = yaml.safe_load((INCLUDED / "sources.yaml").read_text())
    assert sources["license"] == "permissive licenses"
    assert "[sources.yaml](sources.yaml)" in card
    licenses = {source["license"] for source in sources["sources"].values()}
    assert licenses <= set(Bundle.open(INCLUDED).manifest.license.split(" AND "))
    packages = [package for source in sources["sources"].values() for package in source["packages"].values()]
    assert all(package["version"] and len(package["sha256"]) == 64 for package in packages)


@pytest.mark.parametrize("file", ["pyproject.toml", "Makefile", "Dockerfile", ".github/workflows/release.yml"])
def test_the_package_the_image_and_the_recipe_state_the_license_of_the_included_model(file: str) -> None:
    assert Bundle.open(INCLUDED).manifest.license in (ROOT / file).read_text()


def test_a_server_without_arguments_translates_between_english_and_three_languages() -> None:
    with serve(None) as server:
        body = {"text": "The password is too short.", "source_language": "en", "target_language": "fr"}
        assert "Le mot de passe est trop court." in server.post(body)[1]
        statuses = {
            server.post({"text": "Café.", "source_language": source, "target_language": target})[0]
            for language in FOREIGN
            for source, target in (("en", language), (language, "en"))
        }
    assert statuses == {200}
