"""`dragoman bench device` on the CPU: both systems translate the same sentences, and every table has its lines."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import dragoman
from benchmarks.device import Run, measure, time_steps
from model.run import RunFolder
from serve.bundle.bundle import WEIGHTS_FILE, Bundle
from serve.runtime.placement import open_sessions
from tests.support.toy import toy_test_sentences, write_pairs


def test_a_run_counts_the_end_tokens() -> None:
    assert Run(2.0, [(4, 5), (6,), ()]).tokens_per_second == 3.0


def test_the_fastest_run_counts_and_the_first_does_not() -> None:
    times = iter([0.0, 3.0, 3.0, 5.0, 5.0, 9.0])
    asked: list[int] = []

    def system(sources: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        asked.append(len(sources))
        return [(7,) for _ in sources]

    assert measure(system, [(1,), (2,)], 3, lambda: next(times)) == Run(2.0, [(7,), (7,)])
    assert asked == [2] * 4


def test_the_time_of_a_step_includes_that_of_the_decoder(toy_bundle: Path) -> None:
    time = time_steps(open_sessions(Bundle.open(toy_bundle), "auto"), rows=3, source_tokens=4, steps=8)
    assert time.rows == 3
    assert 0 < time.decoder_seconds <= time.step_seconds


def test_the_engine_and_pytorch_translate_the_same_sentences_alike(
    toy_bundle: Path,
    toy_run: RunFolder,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = write_pairs(tmp_path, "test", toy_test_sentences())
    options = ["--run", str(toy_run.path), "--rows", "1,3", "--beam-size", "2", "--rounds", "1", "--steps", "4"]
    figures_file = tmp_path / "figures.json"
    call(monkeypatch, str(toy_bundle), "--data", data, *options, "--json", str(figures_file))
    figures = json.loads(figures_file.read_text())
    assert [(each["rows"], each["beam_size"]) for each in figures["throughput"]] == [(1, 1), (3, 1), (1, 2), (3, 2)]
    assert all(each["identical"] == 1 for each in figures["throughput"])
    assert all(rate > 0 for each in figures["throughput"] for rate in each["tokens_per_second"].values())
    assert 0 < figures["weights_bytes"] < (toy_bundle / WEIGHTS_FILE).stat().st_size, "the encoder's are not read"
    printed = capsys.readouterr().out
    assert "| beam 2 |" in printed
    assert "| as served |" in printed
    assert f"floor: {figures['weights_bytes']} bytes of the decoder's weights" in printed


def test_a_bundle_for_cpus_is_rejected_on_a_gpu(toy_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=r"^dragoman bench device: --device: cuda: expected cpu with"):
        call(monkeypatch, str(toy_bundle), "--data", "multi30k:en-de", "--device", "cuda")


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    """Runs the command in this process."""
    monkeypatch.setattr(sys, "argv", ["dragoman", "bench", "device", *arguments])
    dragoman.main()
