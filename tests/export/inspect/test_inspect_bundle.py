"""`dragoman inspect` describes a bundle, or reports an error in one line."""

import json
from pathlib import Path

import pytest

from dragoman import command_line
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.manifest import Manifest
from dragoman.serve.settings import ServeSettings


def test_it_prints_files_and_memory(toy_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command_line.run("inspect", [str(toy_bundle)])
    text = capsys.readouterr().out
    assert text.startswith(f"bundle        {toy_bundle}\nname          toy\n")
    for section in ("files", "memory"):
        assert f"\n\n{section}" in text
    assert f"decoder state of each engine, {ServeSettings.model_fields['slots'].default} slots" in text


def test_every_direction_is_printed(two_way_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command_line.run("inspect", [str(two_way_bundle)])
    assert "\ndirections    en-de, de-en\n" in capsys.readouterr().out


def test_the_figures_are_written_as_json(
    wide_bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command_line.run("inspect", [str(wide_bundle.folder), "--slots=3", "--json", str(tmp_path / "figures.json")])
    figures = json.loads((tmp_path / "figures.json").read_bytes())
    capsys.readouterr()
    command_line.run("inspect", [str(wide_bundle.folder), "--slots=3", "--json"])
    assert json.loads(capsys.readouterr().out) == figures
    assert Manifest.model_validate(figures["manifest"]) == wide_bundle.manifest
    assert figures["engine"]["slots"] == 3
    assert figures["golden_sentences"] == len(wide_bundle.golden)


def test_a_folder_that_is_no_bundle_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"^dragoman inspect: bundle: .*manifest\.json: No such file"):
        command_line.run("inspect", [str(tmp_path)])


def test_an_output_without_a_folder_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"^dragoman inspect: json: .*expected a file "):
        command_line.run("inspect", ["no bundle", "--json", str(tmp_path / "none" / "file")])


def test_an_unwritable_file_is_named(wide_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, _: bytes) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(SystemExit, match=r"^dragoman inspect: .*figures\.json: Permission denied"):
        command_line.run("inspect", [str(wide_bundle.folder), "--json", str(tmp_path / "figures.json")])
