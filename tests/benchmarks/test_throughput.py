"""Both models train on the same batches, and the last line is the measurement."""

import json
import re

import pytest

import dragoman


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_the_last_line_has_the_ratio_of_every_round(capsys: pytest.CaptureFixture[str]) -> None:
    shape = ["--model.d-model=16", "--model.d-ff=16", "--model.heads=2", "--model.encoder-layers=1"]
    shape += ["--model.decoder-layers=1", "--vocabulary-size=50", "--batch-tokens=100", "--rounds=2", "--steps=3"]
    dragoman.run("throughput", shape)
    text = capsys.readouterr().out
    *_, summary, last = text.splitlines()
    measured = json.loads(last)
    rounds = re.findall(r"round \d: .* tokens/s: (.*)", text)
    assert rounds == [f"{ratio:.2f}" for ratio in measured["ratios"]]
    assert len(rounds) == 2
    assert summary.startswith(f"Dragoman trains {sum(measured['ratios']) / 2:.2f} times as fast")
