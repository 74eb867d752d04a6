"""Errors carry a retry delay over both protocols, or none."""

import pytest

from serve.api.retry_after import (
    PUSHBACK_KEY,
    RETRY_AFTER_HEADER,
    pushback_metadata,
    retry_after_headers,
    retry_details,
)
from serve.errors import ERRORS, InvalidRequestError, QueueFullError, ServiceError


@pytest.mark.parametrize("kind", [error for error in ERRORS if error is not InvalidRequestError])
def test_both_protocols_name_the_same_time(kind: type[ServiceError]) -> None:
    error, seconds = kind("why"), kind.retry_after_seconds
    expected_seconds = [] if seconds is None else [seconds]
    assert [int(value) for value in retry_after_headers(error).values()] == expected_seconds
    assert [int(value) / 1000 for _, value in pushback_metadata(error)] == expected_seconds
    assert [detail.retry_delay.seconds for detail in retry_details(error)] == expected_seconds


def test_a_full_queue_has_a_retry_delay_of_one_second() -> None:
    error = QueueFullError("full")
    assert retry_after_headers(error) == {RETRY_AFTER_HEADER: "1"}
    assert pushback_metadata(error) == ((PUSHBACK_KEY, "1000"),)


def test_an_invalid_request_has_no_retry_delay() -> None:
    error = InvalidRequestError("text", "blank")
    assert (retry_after_headers(error), pushback_metadata(error), retry_details(error)) == ({}, (), [])
