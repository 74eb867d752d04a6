"""`dragoman inspect` describes a bundle, or reports an error in one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman import command_line
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.manifest import Manifest
from dragoman.serve.settings import ServeSettings
from tests.support.paths import ROOT


def call_without(library: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command as if a library were not installed."""
    program = f"""
import sys
sys.modules[{library!r}] = None
from dragoman import command_line
command_line.run("inspect", sys.argv[1:])
"""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_it_prints_files_graphs_step_and_memory(toy_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command_line.run("inspect", [str(toy_bundle)])
    text = capsys.readouterr().out
    assert text.startswith(f"bundle        {toy_bundle}\nname          toy\n")
    for section in ("files", "encoder.onnx, ", "decoder.onnx, ", "one decoder step", "memory"):
        assert f"\n\n{section}" in text
    assert f"decoder state of each engine, {ServeSettings.model_fields['slots'].default} slots" in text


def test_every_direction_is_printed(two_way_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command_line.run("inspect", [str(two_way_bundle)])
    assert "\ndirections    en-de, de-en\n" in capsys.readouterr().out


def test_the_figures_are_written_as_json(wide_bundle: Bundle, tmp_path: Path) -> None:
    command_line.run("inspect", [str(wide_bundle.folder), "--slots=3", "--json", str(tmp_path / "figures.json")])
    figures = json.loads((tmp_path / "figures.json").read_bytes())
    assert Manifest.model_validate(figures["manifest"]) == wide_bundle.manifest
    assert figures["engine"]["slots"] == 3
    assert figures["golden_sentences"] == len(wide_bundle.golden)
    assert [block["title"] for block in figures["step"]][-1] == "projection"
    assert [graph["file"] for graph in figures["graphs"]] == ["encoder.onnx", "decoder.onnx"]


def test_a_folder_that_is_no_bundle_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"^dragoman inspect: bundle: .*manifest\.json: No such file"):
        command_line.run("inspect", [str(tmp_path)])


def test_an_output_without_a_folder_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"^dragoman inspect: json: .*expected a file "):
        command_line.run("inspect", ["no bundle", "--json", str(tmp_path / "none" / "file")])


def test_an_unwritable_file_is_named(recurrent_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, _: bytes) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(SystemExit, match=r"^dragoman inspect: .*figures\.json: Permission denied"):
        command_line.run("inspect", [str(recurrent_bundle.folder), "--json", str(tmp_path / "figures.json")])


@pytest.mark.parametrize(
    ("library", "text"), [("torch", "memory"), ("onnxruntime", "running: ONNX Runtime is not installed")]
)
def test_it_needs_neither_torch_nor_onnx_runtime(library: str, text: str, recurrent_bundle: Bundle) -> None:
    result = call_without(library, str(recurrent_bundle.folder))
    assert (result.returncode, result.stderr) == (0, "")
    assert text in result.stdout


def test_without_onnx_there_is_one_line(recurrent_bundle: Bundle) -> None:
    result = call_without("onnx", str(recurrent_bundle.folder))
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("dragoman inspect: requires onnx, ")
    assert "pip install '.[export]'" in line
