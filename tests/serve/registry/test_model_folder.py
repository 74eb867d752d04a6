"""Bundles found in the served folder, identified by their manifests alone."""

from pathlib import Path

import pytest

from serve.bundle.bundle import BundleError
from serve.registry.loader import ModelFolder


def put(folder: Path, manifest: str = '{"name": "some"}') -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text(manifest)


def names(path: Path) -> list[str]:
    return [each.name for each in ModelFolder(path).find()]


def test_a_bundle_is_served_alone_under_the_name_in_its_manifest(tmp_path: Path) -> None:
    put(tmp_path)
    put(tmp_path / "inside")
    (found,) = ModelFolder(tmp_path).find()
    assert (found.name, found.path) == ("some", tmp_path)


def test_a_lone_bundle_keeps_the_name_that_it_had_first(tmp_path: Path) -> None:
    put(tmp_path)
    folder = ModelFolder(tmp_path)
    put(tmp_path, '{"name": "another"}')
    assert [each.name for each in folder.find()] == ["some"]


@pytest.mark.parametrize("manifest", ["", "[]", '{"name": 3}'])
def test_a_lone_bundle_without_a_name_is_left_to_whoever_opens_it(tmp_path: Path, manifest: str) -> None:
    put(tmp_path, manifest)
    assert names(tmp_path) == ["model"]


def test_the_bundles_of_a_folder_are_named_as_their_folders_are(tmp_path: Path) -> None:
    for name in ("fr-en", "EN_de.2", "7"):
        put(tmp_path / name)
    assert names(tmp_path) == ["7", "EN_de.2", "fr-en"]


def test_what_is_no_bundle_and_what_is_hidden_is_passed_over(tmp_path: Path) -> None:
    put(tmp_path / "a")
    put(tmp_path / ".half-copied")
    (tmp_path / "empty").mkdir()
    (tmp_path / "README").write_text("text")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert names(tmp_path) == ["a"]


def test_a_link_to_a_bundle_is_one(tmp_path: Path) -> None:
    put(tmp_path / "versions" / "3")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a").symlink_to(tmp_path / "versions" / "3")
    assert names(tmp_path / "models") == ["a"]


@pytest.mark.parametrize("name", ["with space", "ä", "-a", "x" * 65])
def test_a_name_that_is_not_fit_for_a_model_is_refused(tmp_path: Path, name: str) -> None:
    put(tmp_path / name)
    with pytest.raises(BundleError, match=r"^.*: invalid name of a model, "):
        names(tmp_path)


def test_a_folder_without_bundles_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=f"^{tmp_path}: no manifest.json"):
        names(tmp_path)


def test_a_folder_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no such folder"):
        names(tmp_path / "none")


def test_another_manifest_has_another_hash(tmp_path: Path) -> None:
    put(tmp_path / "a")
    folder = ModelFolder(tmp_path)
    (before,), (again,) = folder.find(), folder.find()
    put(tmp_path / "a", '{"name": "another"}')
    (after,) = folder.find()
    assert before == again
    assert before.manifest_sha256 != after.manifest_sha256
