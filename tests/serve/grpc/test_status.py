"""The status details of gRPC errors, in google.rpc messages, and retry delays over both protocols."""

import re

import pytest
from google.rpc.error_details_pb2 import ErrorInfo, RequestInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc import StatusCode

from dragoman.serve.edge.problems import error_headers
from dragoman.serve.errors import ERRORS, InvalidRequestError, ServiceError
from dragoman.serve.grpc.call import rich_status, trailers
from tests.support.calls import details_of

RETRIED = ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]


def make(error: type[ServiceError]) -> ServiceError:
    return error("beam", "0") if issubclass(error, InvalidRequestError) else error("why")


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_has_its_reason_and_request_id(error: type[ServiceError]) -> None:
    status = rich_status(make(error), "id-1")
    details = details_of(status)
    assert (status.code, status.message) == (StatusCode[error.grpc_status].value[0], str(make(error)))
    assert (details[ErrorInfo].reason, details[ErrorInfo].domain) == (error.reason.upper(), "dragoman.v1")
    assert re.fullmatch("[A-Z][A-Z0-9_]+[A-Z0-9]", details[ErrorInfo].reason)
    assert details[RequestInfo].request_id == "id-1"


@pytest.mark.parametrize("error", ERRORS)
def test_exactly_the_retryable_errors_carry_the_same_retry_delay_over_both_protocols(error: type[ServiceError]) -> None:
    metadata = dict(trailers("id-1", make(error)))
    details = details_of(Status.FromString(bytes(metadata["grpc-status-details-bin"])))  # type: ignore[arg-type]
    seconds = error.retry_after_seconds
    assert error_headers(make(error)).get("retry-after") == (None if seconds is None else str(seconds))
    assert metadata.get("grpc-retry-pushback-ms") == (None if seconds is None else str(1000 * seconds))
    assert (RetryInfo in details) == (seconds is not None)
    if seconds is not None:
        assert error.grpc_status in RETRIED
        assert details[RetryInfo].retry_delay.seconds == seconds
