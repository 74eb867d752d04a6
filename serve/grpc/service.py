"""What the gRPC server needs to know of a further service, such as the Open Inference Protocol."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from google.protobuf.message import Message

from dragoman.serve.observability.request_metrics import Method

# Makes the handler of a unary method from its label in the metrics, the class of its requests, and the function that
# serves a request with its deadline and its record.
MakeHandler = Callable[[Method, type[Any], Callable[..., Awaitable[Message]]], Any]


class GrpcService(Protocol):
    """A service that the server offers in addition to the translation service."""

    @property
    def name(self) -> str:
        """The full name."""

    @property
    def methods(self) -> Mapping[str, Method]:
        """The labels in the metrics by path; methods of other paths are `other` and are not shed."""

    @property
    def probes(self) -> frozenset[str]:
        """The paths of methods that need no key."""

    def handlers(self, make: MakeHandler) -> dict[str, Any]:
        """Returns the handler of each method."""
