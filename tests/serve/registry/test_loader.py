"""Bundles found in the served folder, identified by their manifests alone."""

from pathlib import Path

import pytest

from dragoman.serve.bundle.bundle import BundleError
from dragoman.serve.registry.loader import ModelFolder


def put(folder: Path, manifest: str = '{"name": "some"}') -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text(manifest)


def names(path: Path) -> list[str]:
    return [item.name for item in ModelFolder(path).find()]


def test_a_single_bundle_keeps_the_first_name_of_its_manifest(tmp_path: Path) -> None:
    put(tmp_path)
    put(tmp_path / "inside")
    folder = ModelFolder(tmp_path)
    put(tmp_path, '{"name": "another"}')
    (found,) = folder.find()
    assert (found.name, found.path) == ("some", tmp_path)


@pytest.mark.parametrize(
    "manifest", ["", "[]", '{"name": 3}', '{"name": ""}', '{"name": "a\\nb"}', '{"name": "../a"}', "[" * 100_000]
)
def test_a_single_bundle_without_a_valid_name_has_a_default_name(tmp_path: Path, manifest: str) -> None:
    put(tmp_path, manifest)
    assert names(tmp_path) == ["model"]


def test_bundles_have_the_names_of_their_folders_and_other_entries_are_skipped(tmp_path: Path) -> None:
    """A link to a bundle is a bundle."""
    for name in ("fr-en", "EN_de.2", "7", ".half-copied", "versions/3"):
        put(tmp_path / name)
    (tmp_path / "linked").symlink_to(tmp_path / "versions" / "3")
    (tmp_path / "empty").mkdir()
    (tmp_path / "README").write_text("text")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert names(tmp_path) == ["7", "EN_de.2", "fr-en", "linked"]


@pytest.mark.parametrize("name", ["with space", "ä", "-a", "x" * 65])
def test_a_folder_name_that_is_invalid_for_a_model_is_rejected(tmp_path: Path, name: str) -> None:
    put(tmp_path / name)
    with pytest.raises(BundleError, match=f"^{tmp_path / name}: "):
        names(tmp_path)


def test_a_missing_folder_and_one_without_bundles_are_rejected(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(BundleError, match=f"^{path}: "):
            names(path)


def test_another_manifest_has_another_hash(tmp_path: Path) -> None:
    put(tmp_path / "a")
    folder = ModelFolder(tmp_path)
    (before,), (again,) = folder.find(), folder.find()
    put(tmp_path / "a", '{"name": "another"}')
    (after,) = folder.find()
    assert before == again
    assert before.manifest_sha256 != after.manifest_sha256
