"""The OpenAPI document of the REST interface and a page that shows it, each written once."""

from functools import cache

from fastapi import FastAPI, Response
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import JSONResponse

OPENAPI_PATH = "/openapi.json"
DOCS_PATH = "/docs"


def add_documentation(app: FastAPI) -> None:
    """Adds both routes to an application. Those of FastAPI encode the document for each request, which takes 5 ms."""

    @cache
    def document() -> bytes:
        return bytes(JSONResponse(app.openapi()).body)

    @cache
    def page() -> bytes:
        return bytes(get_swagger_ui_html(openapi_url=OPENAPI_PATH, title=f"{app.title} - Swagger UI").body)

    async def openapi() -> Response:
        return Response(document(), media_type="application/json")

    async def docs() -> Response:
        return Response(page(), media_type="text/html")

    app.get(OPENAPI_PATH, include_in_schema=False)(openapi)
    app.get(DOCS_PATH, include_in_schema=False)(docs)
