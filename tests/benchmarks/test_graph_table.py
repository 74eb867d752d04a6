"""The table shows medians, ratios to the peer of the same precision with their range, and BLEU if there is any."""

from dataclasses import replace

from benchmarks.graphs import ModelResult, SystemResult, format_model, format_speed
from benchmarks.harness.rounds import Round
from model.scoring import Estimate, Measure

PEER = SystemResult(
    "theirs", None, 2_500_000, [Round(0.2, 40_000_000, {"1": speed, "8": 1000.0}, {}) for speed in (100.0, 50.0)], None
)
OURS = SystemResult(
    "ours",
    "theirs",
    1_000_000,
    [Round(0.1, 30_000_000, {"1": speed, "8": 1500.0}, {}) for speed in (150.0, 100.0)],
    None,
)
RESULT = ModelResult("m30k", "small", [OURS, PEER])


def test_a_row_tells_size_load_memory_and_speeds() -> None:
    assert format_model(RESULT).splitlines() == [
        "**m30k**: small.",
        "",
        "| system | size, MB | load, s | memory, MB | tokens/s, 1 row | tokens/s, 8 rows |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| ours | 1.0 | 0.10 | 30 | 125, 1.75x (1.50-2.00) | 1,500, 1.50x (1.50-1.50) |",
        "| theirs | 2.5 | 0.20 | 40 | 75 | 1,000 |",
    ]


def test_without_the_peer_there_is_no_ratio() -> None:
    assert "| ours | 1.0 | 0.10 | 30 | 125 | 1,500 |" in format_model(replace(RESULT, systems=[OURS]))


def test_bleu_is_shown_with_its_signature() -> None:
    bleu = Measure("nrefs:1", Estimate(36.4, 35.0, 38.0), None, None)
    text = format_model(replace(RESULT, systems=[replace(OURS, bleu=bleu)]))
    assert "| 1,500 | 36.40 ± 1.50 |" in text
    assert text.endswith("BLEU: `nrefs:1`.")


def test_a_ratio_stands_behind_the_speed_with_its_range() -> None:
    assert format_speed([10.0, 30.0, 20.0], [10.0, 10.0, 10.0]) == "20, 2.00x (1.00-3.00)"
