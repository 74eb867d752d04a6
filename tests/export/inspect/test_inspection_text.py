"""The text report contains all figures."""

from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest

from dragoman.export.inspect.figures import Inspection, format_bytes, format_inspection, inspect
from dragoman.serve.bundle.bundle import Bundle
from tests.support.cases import cases

CASES = cases(__file__)


@pytest.fixture(scope="module")
def inspection(wide_bundle: Bundle) -> Inspection:
    return inspect(wide_bundle, slots=32)


@pytest.mark.parametrize(("size", "text"), CASES["a size has the unit that keeps it short"])
def test_a_size_has_the_unit_that_keeps_it_short(size: int, text: str) -> None:
    assert format_bytes(size) == text


def test_the_text_describes_the_model(inspection: Inspection) -> None:
    text = format_inspection(inspection)
    assert "\ndirections    en-de\n" in text
    assert "\narchitecture  transformer: dropout 0.1, d_model 256, " in text
    assert "\nlimits        40 source tokens, 24 target tokens\n" in text


def test_an_architecture_may_be_unknown(inspection: Inspection) -> None:
    provenance = inspection.manifest.provenance.model_copy(update={"training": {}})
    unknown = replace(inspection, manifest=inspection.manifest.model_copy(update={"provenance": provenance}))
    assert "\narchitecture  unknown\n" in format_inspection(unknown)


def test_every_file_has_its_size_and_its_status_in_the_manifest(wide_bundle: Bundle, tmp_path: Path) -> None:
    folder = Path(copytree(wide_bundle.folder, tmp_path / "bundle"))
    (folder / "notes.txt").write_text("mine")
    files = {file.name: file for file in inspect(Bundle.open(folder), slots=1).files}
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert {name: file.size_bytes for name, file in files.items()} == sizes
    assert files["notes.txt"].state == "not listed"
    assert files["manifest.json"].state == "lists the others"
    assert files["weights.bin"].state == "sha256 as listed"


def test_the_memory_of_layers_is_added_up(inspection: Inspection) -> None:
    cache_bytes = 2 * 2 * 4 * 32 * 64 * 4
    lines = [" ".join(line.split()) for line in format_inspection(inspection).splitlines()]
    assert f"target_cache_0…1, target state of a slot [2, 4, 32, 64] {format_bytes(cache_bytes)}" in lines
