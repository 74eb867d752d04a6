"""Limits of keys: their periods are those of the calendar in UTC, and invalid values are refused."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dragoman.serve.keys.key import MAX_MODELS, KeyLimits, Period, period_end, period_start

TIMES = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)).map(lambda item: item.replace(tzinfo=UTC))  # noqa: DTZ001


@given(TIMES, st.sampled_from(["day", "month"]))
def test_a_period_contains_its_time_and_the_next_one_follows(time: datetime, period: Period) -> None:
    start = period_start(period, time.timestamp())
    end = period_end(period, start)
    assert end is not None
    assert start <= time.timestamp() < end
    assert period_start(period, end) == end
    assert period_start(period, end - 1) == start
    first, last = (datetime.fromtimestamp(item, UTC) for item in (start, end))
    assert (first.hour, first.minute, first.second) == (0, 0, 0)
    assert last - first == timedelta(days=1) if period == "day" else (first.day, last.day) == (1, 1)


def test_a_quota_for_ever_has_one_period() -> None:
    assert (period_start("ever", 10.0), period_start("ever", 1e9), period_end("ever", 0)) == (0, 0, None)


@pytest.mark.parametrize(
    "values",
    [{"characters": -1}, {"period": "week"}, {"requests_per_minute": "many"}, {"concurrency": 0}, {"colour": "red"}],
)
def test_an_invalid_limit_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        KeyLimits.model_validate(values)


@pytest.mark.parametrize("models", [["model"] * (MAX_MODELS + 1), ["m" * 65]])
def test_the_models_of_a_key_are_bounded(models: list[str]) -> None:
    with pytest.raises(ValidationError, match="models"):
        KeyLimits.model_validate({"models": models})
