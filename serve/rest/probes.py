"""The probes and the metrics."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dragoman.serve.edge.problems import service_problem
from dragoman.serve.edge.route_table import OPERATION, Route, RouteGroup, described_by_name
from dragoman.serve.errors import ServiceError
from dragoman.serve.http.problem import REQUEST_ID_HEADER
from dragoman.serve.observability.logs import choose_request_id
from dragoman.serve.registry.lifecycle import Lifecycle
from dragoman.serve.rest.description import describe_probes

HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
METRICS_PATH = "/metrics"


class HttpProbes:
    """Handlers of the probes and the metrics."""

    def __init__(self, lifecycle: Lifecycle, read_metrics: Callable[[], Awaitable[bytes]]) -> None:
        self._lifecycle = lifecycle
        self._read_metrics = read_metrics

    @property
    def routes(self) -> RouteGroup:
        """The routes."""
        routes = (
            Route("GET", "/healthz", self.healthz),
            Route("GET", "/readyz", self.readyz),
            Route("GET", METRICS_PATH, self.read_metrics),
        )
        return RouteGroup(routes, described_by_name(describe_probes), OPERATION)

    async def healthz(self) -> Response:
        """Responds with 200 while the event loop runs, also in warm-up and shutdown; with 503 if a model hangs."""
        if self._lifecycle.live:
            return JSONResponse({"status": "live"})
        return JSONResponse({"status": "hanging"}, HTTPStatus.SERVICE_UNAVAILABLE)

    async def readyz(self, request: Request) -> Response:
        """Responds with 503 during warm-up, after a failure of a model, and after the stop signal."""
        reason = self._lifecycle.unready_reason()
        if reason is None:
            return JSONResponse({"status": "ready"})
        return service_problem(reason, choose_request_id(request.headers.get(REQUEST_ID_HEADER)))

    async def read_metrics(self, request: Request) -> Response:
        """Returns the metrics of the service and of the process."""
        try:
            return Response(await self._read_metrics(), media_type=CONTENT_TYPE_LATEST)
        except ServiceError as error:
            return service_problem(error, choose_request_id(request.headers.get(REQUEST_ID_HEADER)))
