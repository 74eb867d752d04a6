"""Retry-After over REST and gRPC: when a client may retry a failed request.

Only errors with `retry_after_seconds` carry it. gRPC sends it twice: as the pushback that gRPC clients obey in their
own retries (gRFC A6), and as `RetryInfo` in the status details.
"""

from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo

from dragoman.serve.errors import ServiceError

RETRY_AFTER_HEADER = "retry-after"
PUSHBACK_KEY = "grpc-retry-pushback-ms"


def retry_after_headers(error: ServiceError) -> dict[str, str]:
    """Returns the Retry-After header, in whole seconds."""
    seconds = error.retry_after_seconds
    return {} if seconds is None else {RETRY_AFTER_HEADER: str(seconds)}


def pushback_metadata(error: ServiceError) -> tuple[tuple[str, str | bytes], ...]:
    """Returns the trailing metadata of a gRPC call, in milliseconds."""
    seconds = error.retry_after_seconds
    return () if seconds is None else ((PUSHBACK_KEY, str(seconds * 1000)),)


def retry_details(error: ServiceError) -> list[RetryInfo]:
    """Returns the `RetryInfo` of a gRPC status."""
    seconds = error.retry_after_seconds
    return [] if seconds is None else [RetryInfo(retry_delay=Duration(seconds=seconds))]
