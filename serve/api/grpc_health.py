"""`grpc.health.v1.Health`. It needs no key, so that watches are bounded.

Nothing is locked while a watcher receives a status: a watcher that does not read delays no other and no change.
"""

import asyncio
from collections.abc import Mapping

from grpc import StatusCode
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from serve.api.grpc_call import Context, send
from serve.api.grpc_waits import Waits

# One for each connection of a client that checks health.
WATCHES = 1024
WATCH_SECONDS = 3600.0


class Health(health_pb2_grpc.HealthServicer):
    """The health of the server, the service and the models."""

    def __init__(self) -> None:
        self._watches = Waits("end of the watch", WATCHES, WATCH_SECONDS)
        self._statuses: Mapping[str, int] = {}
        self._changed = asyncio.Event()

    def publish(self, serving: Mapping[str, bool]) -> None:
        """Replaces the health of all names."""
        statuses = {
            name: HealthCheckResponse.SERVING if each else HealthCheckResponse.NOT_SERVING
            for name, each in serving.items()
        }
        if statuses != self._statuses:
            self._statuses = statuses
            self._changed.set()
            self._changed = asyncio.Event()

    async def Check(self, request: HealthCheckRequest, context: Context) -> HealthCheckResponse:  # noqa: N802
        """Returns the health of a name; ends with NOT_FOUND if it is unknown."""
        status = self._statuses.get(request.service)
        if status is None:
            await context.abort(StatusCode.NOT_FOUND, f"service: no health of {request.service[:100]!r}")
        return HealthCheckResponse(status=status)

    async def Watch(self, request: HealthCheckRequest, context: Context) -> None:  # noqa: N802
        """Sends the health of a name, and each change.

        Raises:
            ServiceError: if the watch lasts too long or there are too many.
        """
        # Otherwise a watch that ends during its first message could get no status.
        await context.send_initial_metadata(())
        sent = None
        with self._watches.limit():
            while True:
                changed = self._changed
                status = self._statuses.get(request.service, HealthCheckResponse.SERVICE_UNKNOWN)
                if status != sent:
                    await send(context, HealthCheckResponse(status=status))
                    sent = status
                await changed.wait()
