"""The table of runs has all measurements and leaves out missing ones."""

from pathlib import Path

import pytest

from examples.attention.runs import RunResult, Scores, describe, draw_results, format_results
from model.config import ModelConfig, RecurrentConfig, TransformerConfig

RESULTS = [
    RunResult("base", "Transformer, 4 + 4 layers", 1_965_056, 4000, Scores(bleu=36.44, chrf=61.2), 64, 4880.4, 878.0),
    RunResult("cost $5", "recurrent, dot", 900, 70, None, 64, 10.0, 9.6),
]


def test_the_table_has_a_row_for_each_run() -> None:
    assert format_results(RESULTS).splitlines()[2:] == [
        "| base | Transformer, 4 + 4 layers | 1,965,056 | 4,000 | 36.4 | 61.2 | 4,880 | 878 |",
        "| cost $5 | recurrent, dot | 900 | 70 |  |  | 10.0 | 9.6 |",
    ]


def test_the_heading_has_the_batch_sizes() -> None:
    assert format_results(RESULTS).splitlines()[0].endswith("| tokens/s, batch 64 | tokens/s, batch 1 |")


def test_the_bars_are_labeled_with_runs_and_values(tmp_path: Path) -> None:
    draw_results(RESULTS, tmp_path / "runs.svg")
    drawn = (tmp_path / "runs.svg").read_text(encoding="utf-8")
    assert [text for text in ("base", "cost $5", "36.4", "61.2", "4,880", "batch 64") if f">{text}<" not in drawn] == []


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (TransformerConfig(encoder_layers=4, decoder_layers=3), "Transformer, 4 + 3 layers"),
        (RecurrentConfig(architecture="recurrent"), "recurrent, additive"),
        (RecurrentConfig(architecture="recurrent", hard=True), "recurrent, additive, hard"),
        (RecurrentConfig(architecture="recurrent", attention="local_monotonic"), "recurrent, local monotonic"),
    ],
)
def test_an_architecture_is_described_in_words(config: ModelConfig, words: str) -> None:
    assert describe(config) == words
