"""`dragoman attention` writes one report of maps, costs and quality."""

import json
import re
from pathlib import Path

import pytest

from dragoman import command_line
from dragoman.model.run import RunFolder

SMALL = ["--sentence", "2", "--timed-sentences", "4", "--batch-size", "8", "--width", "16", "--longest", "64"]


def test_one_command_writes_maps_costs_and_quality(toy_run: RunFolder, toy_data: str, tmp_path: Path) -> None:
    command_line.run("attention", [str(toy_run.path), "--data", toy_data, "--out", str(tmp_path), *SMALL])
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    pictures = re.findall(r"!\[\]\((.+?)\)", report)
    assert {"maps-2.svg", "layers.svg", "quality.svg"} <= set(pictures)
    assert all((tmp_path / picture).stat().st_size for picture in pictures)
    (result,) = json.loads((tmp_path / "measurements.json").read_bytes())["models"]
    assert result["bleu"] > 50
    assert result["single"] > 0


@pytest.mark.parametrize(("option", "value"), [("sentence", "99"), ("data", "files:nowhere.en,nowhere.de")])
def test_an_unusable_option_is_named(
    option: str, value: str, toy_run: RunFolder, toy_data: str, tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match=value.partition(":")[2].partition(",")[0] or value):
        command_line.run(
            "attention", [str(toy_run.path), "--data", toy_data, "--out", str(tmp_path), *SMALL, f"--{option}={value}"]
        )
