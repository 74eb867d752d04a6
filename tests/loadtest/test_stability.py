"""When windows are stable."""

import pytest

from loadtest.measurement import StabilityRule, Window

RULE = StabilityRule()


def test_three_windows_within_a_tenth_agree() -> None:
    assert RULE.is_stable([Window(100.0, 0.2), Window(95.0, 0.21), Window(105.0, 0.19)])


@pytest.mark.parametrize(
    "windows",
    [
        [Window(100.0, 0.2)] * 2,
        [Window(100.0, 0.2), Window(100.0, 0.2), Window(130.0, 0.2)],
        [Window(100.0, 0.2), Window(100.0, 0.2), Window(100.0, 0.3)],
        [Window(100.0, 0.2), Window(100.0, 0.2), Window(0.0, None)],
        [],
    ],
    ids=["too few", "throughput", "latency", "no answer", "none"],
)
def test_other_windows_do_not_agree(windows: list[Window]) -> None:
    assert not RULE.is_stable(windows)


def test_only_the_last_windows_count() -> None:
    assert RULE.is_stable([Window(1.0, 9.0), *[Window(100.0, 0.2)] * 3])
    assert not RULE.is_stable([*[Window(100.0, 0.2)] * 3, Window(1.0, 9.0)])
