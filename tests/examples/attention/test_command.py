"""`dragoman attention` writes one report of maps."""

import re
from pathlib import Path

import pytest

from dragoman import command_line
from dragoman.model.run import RunFolder


@pytest.mark.parametrize("fixture", ["toy_run", "toy_bundle"])
def test_the_report_has_the_maps_of_a_run_or_a_bundle(
    toy_data: str, fixture: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    origin = request.getfixturevalue(fixture)
    folder = getattr(origin, "path", origin)
    command_line.run("attention", [str(folder), "--data", toy_data, "--out", str(tmp_path), "--sentence", "2"])
    pictures = re.findall(r"!\[\]\((.+?)\)", (tmp_path / "report.md").read_text(encoding="utf-8"))
    assert pictures == ["maps-2.svg", f"heads-{folder.name}.svg"]
    assert all((tmp_path / picture).stat().st_size for picture in pictures)


@pytest.mark.parametrize(
    ("options", "problem"),
    [(["--sentence", "9999"], "sentence: 9999"), (["--data", "files:none.en,none.de"], "none"), (["none"], "none")],
)
def test_invalid_input_is_named(toy_data: str, tmp_path: Path, options: list[str], problem: str) -> None:
    with pytest.raises(SystemExit, match=f"^dragoman attention: .*{problem}"):
        command_line.run("attention", ["--out", str(tmp_path / "out"), "--data", toy_data, *options])


def test_models_with_the_same_folder_name_are_refused(toy_run: RunFolder, toy_data: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="expected different folder names"):
        command_line.run(
            "attention", [str(toy_run.path), str(toy_run.path), "--data", toy_data, "--out", str(tmp_path)]
        )
