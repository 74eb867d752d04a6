"""The best setting of a server is the fastest, and among equally fast ones that with the shortest window."""

import pytest

from benchmarks.online_results import Setting, best_setting


def setting(window_ms: float | None, copies: int = 1) -> Setting:
    return Setting(copies, 1, window_ms)


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ({2.0: 100.0, 5.0: 104.0, 10.0: 90.0}, 2.0),
        ({2.0: 100.0, 5.0: 106.0, 10.0: 110.0}, 5.0),
        ({2.0: 50.0, 5.0: 60.0, 10.0: 100.0}, 10.0),
    ],
)
def test_a_longer_window_has_to_be_clearly_faster(rates: dict[float, float], expected: float) -> None:
    assert best_setting({setting(window): rate for window, rate in rates.items()}) == setting(expected)


def test_a_clearly_faster_division_of_threads_wins_despite_its_window() -> None:
    assert best_setting({setting(2.0): 100.0, setting(5.0, copies=2): 150.0}) == setting(5.0, copies=2)


def test_a_server_without_windows_has_one_setting() -> None:
    assert best_setting({setting(None): 0.0}) == setting(None)
