"""The tables of the online benchmark."""

from benchmarks.online_results import OnlineResult, SearchResult, Setting, SystemResult, format_online
from loadtest.results import CurvePoint
from loadtest.tally import Percentiles

PERCENTILES = Percentiles(0.01, 0.02, 0.03, 0.04, 0.05)
POINT = CurvePoint(12.0, 11.0, 10.0, PERCENTILES, 0.0, None)
VOID = CurvePoint(24.0, 11.0, 5.0, PERCENTILES, 0.5, "late")
SYSTEM = SystemResult("dragoman", Setting(1, 1, None), {}, 0.01, [90.0, 100.0, 120.0], [POINT, VOID])
BASELINE = SystemResult("ctranslate2", Setting(1, 1, 5.0), {}, 0.02, [45.0, 50.0, 40.0], [POINT])
NONE = SystemResult("pytorch", Setting(1, 1, 2.0), {}, 0.5, [0.0, 0.0, 0.0], [])
RESULT = OnlineResult("student", "a model", "int8", 1000, [SearchResult("greedy", 0.06, [SYSTEM, BASELINE, NONE])])


def test_goodput_is_followed_by_the_ratio_of_dragoman_to_it() -> None:
    """The ratios of the rounds are 2, 2 and 3."""
    rows = [line for line in format_online(RESULT).splitlines() if line.startswith("| goodput")]
    assert [cell.strip() for cell in rows[0].split("|")[2:-1]] == ["100", "45.0, 2.00x (2.00-3.00)", "0.0"]


def test_the_curve_shows_offered_rates_and_void_trials() -> None:
    table = format_online(RESULT)
    assert "10 (12)" in table
    assert "5 (24, void)" in table
    assert "p99 <= 60 ms, no failure" in table
    assert "ctranslate2 1 x 1 threads, window 5 ms" in table
