"""The table shows medians, ratios to the baseline in the same precision with their range, and BLEU if measured."""

from dataclasses import replace

from benchmarks.graphs import ModelResult, SystemResult, format_model, format_speed
from benchmarks.harness.rounds import Round
from model.scoring import Estimate, Measure

BASELINE = SystemResult(
    "baseline",
    None,
    2_500_000,
    [Round(0.2, 40_000_000, {"1": speed, "8": 1000.0}, {}) for speed in (100.0, 50.0)],
    None,
)
SYSTEM = SystemResult(
    "system",
    "baseline",
    1_000_000,
    [Round(0.1, 30_000_000, {"1": speed, "8": 1500.0}, {}) for speed in (150.0, 100.0)],
    None,
)
RESULT = ModelResult("m30k", "small", [SYSTEM, BASELINE])


def test_a_row_has_size_load_time_memory_and_speeds() -> None:
    assert format_model(RESULT).splitlines() == [
        "**m30k**: small.",
        "",
        "| system | size, MB | load, s | memory, MB | tokens/s, 1 row | tokens/s, 8 rows |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| system | 1.0 | 0.10 | 30 | 125, 1.75x (1.50-2.00) | 1,500, 1.50x (1.50-1.50) |",
        "| baseline | 2.5 | 0.20 | 40 | 75 | 1,000 |",
    ]


def test_without_the_baseline_there_is_no_ratio() -> None:
    assert "| system | 1.0 | 0.10 | 30 | 125 | 1,500 |" in format_model(replace(RESULT, systems=[SYSTEM]))


def test_bleu_is_shown_with_its_signature() -> None:
    bleu = Measure("nrefs:1", Estimate(36.4, 35.0, 38.0), None, None)
    text = format_model(replace(RESULT, systems=[replace(SYSTEM, bleu=bleu)]))
    assert "| 1,500 | 36.40 ± 1.50 |" in text
    assert text.endswith("BLEU: `nrefs:1`.")


def test_the_speed_is_followed_by_its_ratio_with_range() -> None:
    assert format_speed([10.0, 30.0, 20.0], [10.0, 10.0, 10.0]) == "20, 2.00x (1.00-3.00)"
