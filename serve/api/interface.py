"""What differs between the REST interfaces that share one port: paths, keys, error bodies and headers."""

from collections.abc import Mapping
from typing import Protocol

from fastapi import Response
from starlette.exceptions import HTTPException

from serve.errors import ServiceError
from serve.observability.metrics import Method


class Interface(Protocol):
    """One REST interface.

    Attributes:
        reads_keys: its handlers authenticate each request, because a key may be in the body.
    """

    reads_keys: bool

    def owns(self, path: str) -> bool:
        """Returns whether a path belongs to the interface, even if no route has it."""

    def find_method(self, path: str) -> Method | None:
        """Returns the label of a path in the metrics; None: it needs no model."""

    def headers(self, request_id: str) -> Mapping[str, str]:
        """Returns headers of every response."""

    def write_error(self, error: ServiceError, request_id: str) -> Response:
        """Returns the response to a failed request."""

    def write_http_error(self, error: HTTPException, request_id: str) -> Response:
        """Returns the response to an HTTP error, such as a wrong path, method or content type."""
