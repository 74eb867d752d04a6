"""The status details of gRPC errors, in google.rpc messages."""

import re
from typing import Any

import pytest
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RequestInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc import StatusCode
from grpc_status.rpc_status import from_call

from protos.translation_pb2 import SearchOptions, TranslateRequest
from serve.api.grpc_call import rich_status, trailers
from serve.errors import ERRORS, InvalidRequestError, ServiceError
from tests.support.live import LiveService

RETRIED = [StatusCode.RESOURCE_EXHAUSTED, StatusCode.UNAVAILABLE]


def make(error: type[ServiceError]) -> ServiceError:
    return error("beam", "0") if issubclass(error, InvalidRequestError) else error("why")


def details_of(status: Status) -> dict[type[Message], Any]:
    """Returns the details of a status by kind; each kind occurs once."""
    found: dict[type[Message], Any] = {}
    for kind in (ErrorInfo, BadRequest, RetryInfo, RequestInfo):
        for detail in status.details:
            message = kind()
            if detail.Unpack(message):
                assert kind not in found
                found[kind] = message
    assert len(found) == len(status.details)
    return found


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_has_its_reason_and_request_id(error: type[ServiceError]) -> None:
    status = rich_status(make(error), "id-1")
    details = details_of(status)
    assert (status.code, status.message) == (error.grpc_status.value[0], str(make(error)))
    assert (details[ErrorInfo].reason, details[ErrorInfo].domain) == (error.reason.upper(), "dragoman.v1")
    assert re.fullmatch("[A-Z][A-Z0-9_]+[A-Z0-9]", details[ErrorInfo].reason)
    assert details[RequestInfo].request_id == "id-1"


@pytest.mark.parametrize("error", ERRORS)
def test_exactly_the_retryable_errors_carry_both_retry_delays(error: type[ServiceError]) -> None:
    metadata = dict(trailers("id-1", make(error)))
    details = details_of(Status.FromString(bytes(metadata["grpc-status-details-bin"])))  # type: ignore[arg-type]
    seconds = error.retry_after_seconds
    assert (RetryInfo in details) == ("grpc-retry-pushback-ms" in metadata) == (seconds is not None)
    if seconds is not None:
        assert error.grpc_status in RETRIED
        assert metadata["grpc-retry-pushback-ms"] == str(details[RetryInfo].retry_delay.ToMilliseconds())


@pytest.mark.parametrize(
    ("request_message", "field"),
    [
        (TranslateRequest(), "text"),
        (TranslateRequest(text=["fine", " "]), "text[1]"),
        (TranslateRequest(text=["fine"], source_language="fr"), "source_language"),
        (TranslateRequest(text=["fine"], options=SearchOptions(beam_size=0)), "options.beam_size"),
        (b"\x0a\x01\xff", "text[0]"),
    ],
)
def test_the_details_name_the_invalid_field(
    live: LiveService, request_message: TranslateRequest | bytes, field: str
) -> None:
    """Its description is the same as in the status message."""
    error: Any = live.call_error(request_message)
    status = from_call(error)
    details = details_of(status)
    (violation,) = details[BadRequest].field_violations
    assert violation.field == field == details[ErrorInfo].metadata["field"]
    assert f"{field}: {violation.description}" == error.details() == status.message


def test_an_unknown_model_is_named_by_its_field(live: LiveService) -> None:
    error: Any = live.call_error(TranslateRequest(text=["alpha"], model="none"))
    details = details_of(from_call(error))
    assert details[ErrorInfo].reason == "MODEL_NOT_FOUND"
    assert details[ErrorInfo].metadata["field"] == "model"
    assert BadRequest not in details


@pytest.mark.parametrize(
    "body",
    [
        {"text": []},
        {"text": ["fine", " "]},
        {"text": "fine", "options": {"beam_size": 0}},
        {"text": "fine", "model": "none"},
    ],
)
def test_both_protocols_name_the_same_field_and_reason(live: LiveService, body: dict[str, Any]) -> None:
    text = body["text"]
    message = TranslateRequest(**{**body, "text": [text] if isinstance(text, str) else text})
    problem = live.post(body).json()
    error: Any = live.call_error(message)
    info = details_of(from_call(error))[ErrorInfo]
    assert (problem["field"], problem["reason"].upper()) == (info.metadata["field"], info.reason)
