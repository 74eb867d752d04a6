"""`grpc.health.v1.Health`. It needs no key, so that watches are bounded.

Nothing is locked while a watcher receives a status: a watcher that does not read delays no other and no change.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import grpc
from grpc import StatusCode
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.grpc.call import Context, send
from dragoman.serve.grpc.messages import RequestParser
from dragoman.serve.grpc.waits import LimitedWait, Waits

# One for each connection of a client that checks health.
WATCHES = 1024
WATCH_SECONDS = 3600.0
# A request has one field.
MAX_VALUES = 16

Request = HealthCheckRequest | InvalidRequestError


class Health:
    """The health of the server, the service and the models."""

    def __init__(self) -> None:
        self._watches = Waits("end of the watch", WATCHES, WATCH_SECONDS)
        self._statuses: Mapping[str, int] = {}
        self._changed = asyncio.Event()

    def publish(self, serving: Mapping[str, bool]) -> None:
        """Replaces the health of all names."""
        statuses = {
            name: HealthCheckResponse.SERVING if server else HealthCheckResponse.NOT_SERVING
            for name, server in serving.items()
        }
        if statuses != self._statuses:
            self._statuses = statuses
            self._changed.set()
            self._changed = asyncio.Event()

    def handlers(self) -> dict[str, Any]:
        """Returns the handler of each method."""
        coding: Any = {
            "request_deserializer": RequestParser(HealthCheckRequest, MAX_VALUES).parse,
            "response_serializer": HealthCheckResponse.SerializeToString,
        }
        return {
            "Check": grpc.unary_unary_rpc_method_handler(self._check, **coding),
            "Watch": grpc.unary_stream_rpc_method_handler(self._watch, **coding),
        }

    async def _check(self, request: Request, context: Context) -> HealthCheckResponse:
        """Returns the health of a name; ends with NOT_FOUND if it is unknown."""
        name = _service(request)
        status = self._statuses.get(name)
        if status is None:
            await context.abort(StatusCode.NOT_FOUND, f"service: no health of {name[:100]!r}")
        return HealthCheckResponse(status=status)

    async def _watch(self, request: Request, context: Context) -> None:
        """Sends the health of a name, and each change.

        Raises ServiceError if the request is invalid, the watch lasts too long or there are too many.
        """
        name = _service(request)
        # Otherwise a watch that ends during its first message could get no status.
        await context.send_initial_metadata(())
        sent = None
        with LimitedWait(self._watches):
            while True:
                changed = self._changed
                status = self._statuses.get(name, HealthCheckResponse.SERVICE_UNKNOWN)
                if status != sent:
                    await send(context, HealthCheckResponse(status=status))
                    sent = status
                await changed.wait()


def _service(request: Request) -> str:
    """Returns the name in a request; raises the error of one that is invalid."""
    if isinstance(request, InvalidRequestError):
        raise request
    return request.service
