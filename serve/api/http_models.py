"""The REST interface to the models themselves: listing them, and reading their folder again for whoever has the key.

Errors travel as exceptions to `serve.api.http_api`, which adds these handlers to its own.
"""

from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from pydantic import TypeAdapter

from serve.api.door import Door
from serve.api.http_problem import problem_documentation
from serve.errors import ModelNotFoundError, UnauthorisedError
from serve.registry.model_description import ModelDescription
from serve.registry.registry import Models
from serve.registry.reloader import Reloader, ReloadReport

MODELS_PATH = "/v1/models"
RELOAD_PATH = "/v1/admin/reload"

_MODELS = TypeAdapter(dict[str, tuple[ModelDescription, ...]])
_MODEL = TypeAdapter(ModelDescription)
_REPORT = TypeAdapter(ReloadReport)


class HttpModels:
    """The handlers and what they need."""

    def __init__(self, models: Models, reloader: Reloader, admin_door: Door | None) -> None:
        """Keeps what it needs.

        Args:
            models: what is listed.
            reloader: reads the folder again.
            admin_door: whom it lets in may ask for that; None: nobody may.
        """
        self._models = models
        self._reloader = reloader
        self._admin_door = admin_door

    def build(self) -> APIRouter:
        """Returns the routes; that of the administration is among them only if there is a key."""
        router = APIRouter()
        router.get(
            MODELS_PATH,
            summary="Lists the models, in the order in which a request that names none chooses",
            response_model=dict[str, tuple[ModelDescription, ...]],
        )(self.list_models)
        router.get(
            f"{MODELS_PATH}/{{name:path}}",
            summary="Tells about one model",
            response_model=ModelDescription,
            responses=problem_documentation(ModelNotFoundError),
        )(self.get_model)
        if self._admin_door is not None:
            router.post(
                RELOAD_PATH,
                summary="Reads the folder of the models again, with the header `Authorization: Bearer KEY`",
                response_model=ReloadReport,
                responses=problem_documentation(UnauthorisedError),
            )(self.reload)
        return router

    async def list_models(self) -> Response:
        """Those of the start are listed while they are loaded, later ones once they are ready."""
        return Response(_MODELS.dump_json({"models": self._models.describe()}), media_type="application/json")

    async def get_model(self, name: str) -> Response:
        """Tells state, directions and limits."""
        return Response(_MODEL.dump_json(self._models.get(name).describe()), media_type="application/json")

    async def reload(self, request: Request) -> Response:
        """Answers when every model is loaded and proven, or has failed: then with 422, and what failed goes on."""
        if self._admin_door is not None:
            self._admin_door.check_key(request.headers.get("authorization", ""))
        report = await self._reloader.reload()
        status = HTTPStatus.UNPROCESSABLE_ENTITY if report.failures else HTTPStatus.OK
        return Response(_REPORT.dump_json(report, exclude_none=True), status, media_type="application/json")
