"""Translations keep the order of the sources; speed counts their tokens in the fastest of some rounds."""

import json
from collections.abc import Callable
from itertools import accumulate, chain, repeat
from pathlib import Path

import pytest

from dragoman import command_line
from dragoman.model.search import generate_greedy, translate_all
from examples.attention.quality import ROUNDS, measure_speeds
from tests.support.toy import random_model, random_sources


def clock_of_passes(*seconds: float) -> Callable[[], float]:
    """Returns a clock for passes of the given durations, read before and after each."""
    return accumulate(chain.from_iterable(zip(repeat(0.0), seconds, strict=False))).__next__


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_translations_have_the_order_of_the_sources_and_all_tokens_count(batch_size: int) -> None:
    model = random_model(1)
    sources = random_sources(model, 2, 7)
    expected = [generated.target_ids for generated in generate_greedy(model, sources)]
    assert [item.target_ids for item in translate_all(model, sources, batch_size)] == expected
    tokens = sum(len(target) + 1 for target in expected)
    speeds = measure_speeds({"run": (model, sources)}, batch_size, clock_of_passes(*[2.0] * ROUNDS))
    assert speeds == {"run": pytest.approx(tokens / 2)}


def test_the_fastest_round_of_each_task_counts() -> None:
    """The tasks take turns, so that other load slows all of them."""
    model = random_model(1)
    sources = random_sources(model, 2, 4)
    tokens = sum(len(item.target_ids) + 1 for item in translate_all(model, sources, 64))
    passes = [9.0, 9.0, 1.0, 5.0, 8.0, 4.0]  # first, second; first, second; first, second
    speeds = measure_speeds(dict.fromkeys(("first", "second"), (model, sources)), 64, clock_of_passes(*passes))
    assert speeds == {"first": pytest.approx(tokens / 1), "second": pytest.approx(tokens / 4)}


@pytest.mark.parametrize("fixture", ["toy_run", "toy_bundle"])
def test_a_run_and_a_bundle_are_reported(
    toy_data: str, fixture: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    origin = request.getfixturevalue(fixture)
    folder = getattr(origin, "path", origin)
    options = ["--out", str(tmp_path), "--data", toy_data, "--sentence", "2", "--longest", "16", "--width", "8"]
    command_line.run("attention", [str(folder), *options, "--timed-sentences", "2"])
    names = {"maps-2.svg", f"heads-{folder.name}.svg", "layers.svg", "quality.svg"}
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert {name for name in names if f"]({name})" in report and (tmp_path / name).is_file()} == names
    (model,) = json.loads((tmp_path / "measurements.json").read_bytes())["models"]
    assert model["name"] == folder.name
    assert model["bleu"] > 50
    assert model["single"] > 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [(["--sentence", "9999"], "sentence: 9999"), (["--data", "files:none.en,none.de"], "none"), (["none"], "none")],
)
def test_invalid_input_is_named(toy_data: str, tmp_path: Path, options: list[str], problem: str) -> None:
    with pytest.raises(SystemExit, match=f"^dragoman attention: .*{problem}"):
        command_line.run("attention", ["--out", str(tmp_path / "out"), "--data", toy_data, *options])
