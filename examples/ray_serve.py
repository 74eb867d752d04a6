"""A deployment of Ray Serve that translates in its own process: `serve run deploy/ray/dragoman.yaml` in a checkout.

Ray calls a replica concurrently, and the engine decodes the texts of all running calls together.
"""

from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse

from dragoman import AsyncTranslator, InvalidArgumentError

# Less than the timeout of Ray's health checks, 30 seconds.
HEALTH_SECONDS = 20.0


class Body(BaseModel):
    """The body of a request; a model with one direction needs no languages."""

    model_config = ConfigDict(extra="forbid")

    text: list[str]
    source_language: str = ""
    target_language: str = ""


class Replica:
    """A model in a process; `settings` are those of `AsyncTranslator`, `probe` is the body that tests its health."""

    def __init__(self, model: str, probe: dict[str, Any], **settings: Any) -> None:
        self._translator = AsyncTranslator(model, **settings)
        self._probe = Body(**probe)
        self._opened = False

    async def check_health(self) -> None:
        """Loads the model if needed, which proves its golden sentences, and translates the probe.

        Ray awaits it before the first request, then regularly. Raises TranslationError if the model fails.
        """
        if not self._opened:
            await self._translator.__aenter__()
            self._opened = True
        await self._translate(self._probe, HEALTH_SECONDS)

    async def __call__(self, request: Request) -> JSONResponse:
        """Returns `{"translations": [...]}`, or `{"error": ...}` if the request is invalid."""
        try:
            return JSONResponse({"translations": await self._translate(Body.model_validate_json(await request.body()))})
        except (InvalidArgumentError, ValidationError) as error:
            return JSONResponse({"error": str(error)}, HTTPStatus.BAD_REQUEST)

    async def _translate(self, body: Body, timeout_seconds: float | None = None) -> list[str]:
        languages = body.model_dump(include={"source_language", "target_language"})
        found = await self._translator.translate(body.text, timeout_seconds=timeout_seconds, **languages)
        return [translation.text for translation in found]


def build(settings: dict[str, Any]) -> Any:
    """Returns the application; `settings` are the arguments of `Replica`, the `args` of Ray Serve's configuration."""
    return serve.deployment(Replica).bind(**settings)
