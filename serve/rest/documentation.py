"""The OpenAPI document of the REST interface, written for the first client that asks for it."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from starlette.responses import JSONResponse, Response

from dragoman.serve.edge.route_table import HIDDEN, Route, RouteGroup
from dragoman.serve.host.system import run_in_daemon_thread
from dragoman.serve.http.kept_bytes import KeptBytes

OPENAPI_PATH = "/openapi.json"


class Documentation:
    """Writes the document once, in a thread, because it takes tenths of a second."""

    def __init__(self, groups: Callable[[], Iterable[RouteGroup]]) -> None:
        """Stores a function that returns all routes."""
        self._groups = groups
        self._writing: asyncio.Task[tuple[dict[str, Any], KeptBytes]] | None = None

    async def read(self) -> dict[str, Any]:
        """Returns the document."""
        return (await self._written())[0]

    async def openapi(self) -> Response:
        """Answers with the document."""
        return Response((await self._written())[1], media_type="application/json")

    @property
    def routes(self) -> RouteGroup:
        """The route of the document."""
        return RouteGroup((Route("GET", OPENAPI_PATH, self.openapi),), lambda _: HIDDEN)

    async def _written(self) -> tuple[dict[str, Any], KeptBytes]:
        if self._writing is None:
            self._writing = asyncio.create_task(run_in_daemon_thread(self._write))
        return await asyncio.shield(self._writing)

    def _write(self) -> tuple[dict[str, Any], KeptBytes]:
        from dragoman.serve.rest.openapi import write_openapi  # noqa: PLC0415 - takes time and memory

        document = write_openapi(self._groups())
        return document, KeptBytes(JSONResponse(document).body)
