"""The tables show medians, ratios of Dragoman to the baselines, and where translations differ."""

from dataclasses import replace

from benchmarks.harness.rounds import Round
from benchmarks.near_ties import Difference
from benchmarks.offline_results import OfflineModelResult, OfflineResult, best, format_figure, format_offline


def rounds_of(seconds: float, tokens: int, megabytes: int) -> list[Round]:
    """Returns two rounds, the second one twice as slow."""
    return [
        Round(
            0.1,
            megabytes * 10**6,
            dict.fromkeys(("greedy", "beam 4"), tokens / taken),
            {"greedy": taken, "beam 4": taken},
        )
        for taken in (seconds, 2 * seconds)
    ]


SYSTEM = OfflineResult(
    "dragoman",
    "fp32",
    {"greedy": {"8:rows": [1.0], "16:rows": [2.0]}, "beam 4": {"8:rows": [2.0], "16:rows": [1.0]}},
    rounds_of(1, 3000, 200),
    {1: rounds_of(0.4, 30, 1), 2: rounds_of(0.2, 30, 1)},
    {"greedy": [], "beam 4": [Difference(7, 1.5e-6)]},
)
BASELINE = OfflineResult(
    "ctranslate2",
    "fp32",
    {"greedy": {"8:examples": [1.0], "64:tokens": [2.0]}, "beam 4": {"8:examples": [2.0], "64:tokens": [1.0]}},
    rounds_of(2, 3000, 400),
    {1: rounds_of(0.4, 30, 1), 2: rounds_of(0.5, 30, 1)},
    None,
)
RESULT = OfflineModelResult("m30k", "small", 100, 10, [SYSTEM, BASELINE])


def test_a_table_has_a_row_for_each_measure_and_a_column_for_each_system() -> None:
    threads = "dragoman fp32 greedy 2, dragoman fp32 beam 4 2"
    baseline_threads = "ctranslate2 for fp32 greedy 1, ctranslate2 for fp32 beam 4 1"
    batches = "ctranslate2 for fp32 greedy 64:tokens, ctranslate2 for fp32 beam 4 8:examples"
    rows = "dragoman fp32 greedy 16:rows, dragoman fp32 beam 4 8:rows"
    assert format_offline(RESULT).splitlines() == [
        "**m30k**: small. 100 sentences, 10 of them alone.",
        "",
        "| fp32 | dragoman | ctranslate2 |",
        "| --- | ---: | ---: |",
        "| greedy, tokens/s | 2,250 | 1,125, 2.00x (2.00-2.00) |",
        "| greedy, sentences/s | 75.0 | 37.5, 2.00x (2.00-2.00) |",
        "| beam 4, tokens/s | 2,250 | 1,125, 2.00x (2.00-2.00) |",
        "| beam 4, sentences/s | 75.0 | 37.5, 2.00x (2.00-2.00) |",
        "| greedy, alone, ms | 30.0 | 60.0, 0.50x (0.50-0.50) |",
        "| beam 4, alone, ms | 30.0 | 60.0, 0.50x (0.50-0.50) |",
        "| memory, MB | 200 | 400, 0.50x (0.50-0.50) |",
        "| greedy, same as ctranslate2 | 100.00% |  |",
        "| beam 4, same as ctranslate2 | 99.00% |  |",
        "",
        f"- Batches, or rows of each engine: {rows}, {batches}.",
        f"- Threads for one sentence at a time: {threads}, {baseline_threads}.",
        "- dragoman, beam 4, sentences that differ from ctranslate2: 7 (1.5e-06).",
    ]


def test_each_precision_has_a_table_of_its_own() -> None:
    eight = [replace(system, precision="int8", differences=None) for system in RESULT.systems]
    text = format_offline(replace(RESULT, systems=[*RESULT.systems, *eight]))
    assert (text.count("| fp32 |"), text.count("| int8 |")) == (1, 1)
    assert text.count("same as ctranslate2") == 2


def test_a_baseline_without_a_precision_is_shown_with_its_own() -> None:
    """This shows the gain of 8-bit integers over systems that lack them."""
    eight = replace(SYSTEM, precision="int8", differences=None, together=rounds_of(0.5, 3000, 100))
    floats_alone = replace(BASELINE, maker="optimum")
    lines = format_offline(replace(RESULT, systems=[*RESULT.systems, floats_alone, eight])).splitlines()
    assert "| fp32 | dragoman | ctranslate2 | optimum |" in lines
    table = lines[lines.index("| int8 | dragoman | ctranslate2, fp32 | optimum, fp32 |") :]
    assert table[2] == "| greedy, tokens/s | 4,500 | 1,125, 4.00x (4.00-4.00) | 1,125, 4.00x (4.00-4.00) |"


def test_without_a_comparison_there_is_no_row_for_it() -> None:
    text = format_offline(replace(RESULT, systems=[replace(SYSTEM, differences=None), BASELINE]))
    assert "same as ctranslate2" not in text


def test_a_ratio_is_taken_in_each_round() -> None:
    assert format_figure([10.0, 10.0, 10.0], [10.0, 30.0, 20.0]) == "10.0, 2.00x (1.00-3.00)"
    assert format_figure([1000.4], None) == "1,000"


def test_the_best_batching_gives_the_most_tokens() -> None:
    assert best({"8:examples": [1.0], "9:examples": [3.0], "10:examples": [2.0]}) == "9:examples"


def test_the_fastest_pass_of_a_size_decides() -> None:
    """A single slow pass does not count."""
    assert best({"2:examples": [90.0, 40.0], "40:tokens": [80.0, 85.0]}) == "2:examples"
