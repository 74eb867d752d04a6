"""The routes of the served models: their descriptions, and reloads."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from pydantic import TypeAdapter
from starlette.responses import Response

from dragoman.serve.edge.route_table import MODELS, Route, RouteGroup, described_by_name
from dragoman.serve.registry.description import ModelDescription, ModelList
from dragoman.serve.registry.registry import ModelRegistry
from dragoman.serve.registry.reloader import ReloadReport
from dragoman.serve.rest.description import describe_models

MODELS_PATH = "/v1/models"
RELOAD_PATH = "/v1/admin/reload"

_MODELS = TypeAdapter(ModelList)
_MODEL = TypeAdapter(ModelDescription)
_REPORT = TypeAdapter(ReloadReport)


class HttpModels:
    """Handlers of the model routes."""

    def __init__(self, models: ModelRegistry, reload: Callable[[], Awaitable[ReloadReport]], *, reloads: bool) -> None:
        """Creates the handlers; `reloads`: whether there is a route for reloads."""
        self._models = models
        self._reload = reload
        self._reloads = reloads

    @property
    def routes(self) -> RouteGroup:
        """The routes."""
        routes = [
            Route("GET", MODELS_PATH, self.list_models),
            Route("GET", f"{MODELS_PATH}/{{name:path}}", self.get_model),
        ]
        if self._reloads:
            routes.append(Route("POST", RELOAD_PATH, self.reload))
        return RouteGroup(tuple(routes), described_by_name(describe_models), MODELS)

    async def list_models(self) -> Response:
        """Lists models that exist at startup even while they load, and models added later once they are ready."""
        return Response(_MODELS.dump_json(self._models.describe()), media_type="application/json")

    async def get_model(self, name: str) -> Response:
        """Returns state, directions and limits of the model."""
        return Response(_MODEL.dump_json(self._models.get(name).describe()), media_type="application/json")

    async def reload(self) -> Response:
        """Responds after every model is loaded and verified, or has failed.

        If a model fails, the status is 422 and the model that ran before stays in service.
        """
        report = await self._reload()
        status = HTTPStatus.UNPROCESSABLE_ENTITY if report.failures else HTTPStatus.OK
        return Response(_REPORT.dump_json(report, exclude_none=True), status, media_type="application/json")
