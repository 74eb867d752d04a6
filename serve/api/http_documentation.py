"""The OpenAPI document of the REST interface, written once."""

from functools import cache

from fastapi import FastAPI, Response
from starlette.responses import JSONResponse

from serve.kept_bytes import KeptBytes

OPENAPI_PATH = "/openapi.json"


def add_documentation(app: FastAPI) -> None:
    """Adds the route to an application. FastAPI's own encodes the document for each request, which takes 5 ms."""

    @cache
    def document() -> KeptBytes:
        return KeptBytes(JSONResponse(app.openapi()).body)

    async def openapi() -> Response:
        return Response(document(), media_type="application/json")

    app.get(OPENAPI_PATH, include_in_schema=False)(openapi)
