"""`dragoman profile` measures the phases of a step and the operators of the decoder."""

import json
from pathlib import Path
from typing import Any

import pytest

import dragoman
from serve.bundle.bundle import Bundle

QUICK = ["--steps=12", "--source-tokens=7", "--target-tokens=5"]


@pytest.fixture(scope="module", name="found")
def _found(int8_bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The figures of beams of two in steps of two and six rows."""
    path = tmp_path_factory.mktemp("profile") / "profile.json"
    dragoman.run("profile", [str(int8_bundle.folder), "--rows=2,6", "--beam-size=2", "--json", str(path), *QUICK])
    figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return figures


def refusal(*arguments: str) -> str:
    """Returns the error message of a call."""
    with pytest.raises(SystemExit) as ended:
        dragoman.run("profile", list(arguments))
    return str(ended.value.code)


def test_every_phase_of_a_beam_is_found_for_every_number_of_rows(found: dict[str, Any]) -> None:
    assert [result["rows"] for result in found["results"]] == [2, 6]
    for result in found["results"]:
        names = [phase["name"] for phase in result["steps"]["phases"]]
        before = ["admit", "prefill: encoder run", "prefill: around it", "decode: decoder run"]
        select = ["select: log-probabilities run", "select: top-k run", "select: around it"]
        assert [name for name in names if name != "branch"] == [*before, *select, "retire", "rest"]
        assert result["steps"]["steps"] == 12
        assert sum(phase["share"] for phase in result["steps"]["phases"]) == pytest.approx(1)


def test_a_steady_load_starts_a_sequence_whenever_one_ends(found: dict[str, Any]) -> None:
    """One sequence of five target tokens ends at every fifth step, three at three of five."""
    for result, occurrence in zip(found["results"], (1 / 5, 3 / 5), strict=True):
        (encoder,) = (each for each in result["steps"]["phases"] if each["name"] == "prefill: encoder run")
        assert encoder["occurrence"] == pytest.approx(occurrence, abs=1 / 12)


def test_operators_are_those_that_onnx_runtime_runs(found: dict[str, Any]) -> None:
    for result in found["results"]:
        nodes = result["decoder"]["nodes"]
        assert {"GroupQueryAttention", "MatMulIntegerToFloat"} <= {node["operator"] for node in nodes}
        assert sum(node["share"] for node in nodes) == pytest.approx(1)
        assert {node["output"].split(" ")[0] for node in nodes} >= {str(result["rows"])}


def test_tables_are_printed_with_the_command_that_made_them(
    int8_bundle: Bundle, capsys: pytest.CaptureFixture[str]
) -> None:
    dragoman.run("profile", [str(int8_bundle.folder), "--rows=3", "--heaviest=2", *QUICK])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].split(":")[0].strip() for line in lines if line.endswith("3 rows |")] == [
        "phase of a step",
        "operator of the decoder",
        "heaviest nodes",
    ]
    assert not any(line.startswith(("| branch", "| select: top-k")) for line in lines)
    assert lines[-1].startswith(f"Measured by `dragoman profile {int8_bundle.folder} --rows 3 ")


@pytest.mark.parametrize("option", ["source-tokens", "target-tokens"])
def test_more_tokens_than_the_model_allows_are_rejected(int8_bundle: Bundle, option: str) -> None:
    message = refusal(str(int8_bundle.folder), *QUICK, f"--{option}=10000")
    assert message.startswith(f"dragoman profile: {option}: 10000: expected at most ")


def test_rows_that_are_no_multiple_of_the_beam_size_are_rejected(int8_bundle: Bundle) -> None:
    message = refusal(str(int8_bundle.folder), *QUICK, "--beam-size=2", "--rows=4,5")
    assert message.startswith("dragoman profile: rows: 5: ")


def test_a_file_in_a_missing_folder_is_rejected_before_measuring(int8_bundle: Bundle, tmp_path: Path) -> None:
    message = refusal(str(int8_bundle.folder), *QUICK, "--json", str(tmp_path / "none" / "profile.json"))
    assert message.startswith(f"dragoman profile: json: {tmp_path}/none/profile.json: ")


def test_a_folder_without_a_bundle_is_rejected(tmp_path: Path) -> None:
    assert refusal(str(tmp_path)).startswith(f"dragoman profile: {tmp_path}")
