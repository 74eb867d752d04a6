"""The routes for operators that create, list, change and revoke API keys. They require the admin key."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dragoman.serve.edge.auth import Security
from dragoman.serve.edge.problems import problem_documentation
from dragoman.serve.edge.reader import RequestReader
from dragoman.serve.edge.route_table import KEYS, Route, RouteGroup, described_by_name
from dragoman.serve.edge.schemas import json_body
from dragoman.serve.errors import InvalidRequestError, UnauthorizedError
from dragoman.serve.keys.account import ask
from dragoman.serve.keys.key import KeyLimits, KeyName, describe_key
from dragoman.serve.keys.store import KeyExistsError, KeyStore, NoSuchKeyError
from dragoman.serve.keys.usage import describe_usage

KEYS_PATH = "/v1/keys"
_ADMIN = "; requires the header `Authorization: Bearer KEY` of the admin"

T = TypeVar("T")
AnyBody = TypeVar("AnyBody", bound=BaseModel)


class KeyBody(KeyLimits):
    """A new key."""

    name: KeyName


class HttpKeys:
    """Handlers of the routes of keys."""

    def __init__(self, store: KeyStore, security: Security, reader: RequestReader) -> None:
        self._store = store
        self._security = security
        self._reader = reader

    @property
    def routes(self) -> RouteGroup:
        """The routes."""
        one = f"{KEYS_PATH}/{{name}}"
        routes = (
            Route("GET", KEYS_PATH, self.list_keys),
            Route("POST", KEYS_PATH, self.create),
            Route("GET", one, self.get),
            Route("PATCH", one, self.change),
            Route("DELETE", one, self.revoke),
            Route("GET", f"{one}/usage", self.usage),
        )
        return RouteGroup(routes, described_by_name(_describe_routes), KEYS)

    async def list_keys(self) -> Response:
        """Lists revoked keys too."""
        return JSONResponse({"keys": [describe_key(key) for key in await ask(self._store.list)]})

    async def create(self, request: Request) -> Response:
        """The server stores the digest of the key only."""
        body = await self._read(request, KeyBody)
        limits = KeyLimits.model_validate(body.model_dump(exclude={"name"}))
        key, text = await self._change(self._store.create, body.name, limits)
        return JSONResponse({**describe_key(key), "key": text}, HTTPStatus.CREATED)

    async def get(self, name: str) -> Response:
        """Returns the limits of the key and its times."""
        return JSONResponse(describe_key(await self._find(self._store.get, name)))

    async def change(self, name: str, request: Request) -> Response:
        """All processes apply the limits within seconds."""
        body = await self._read(request, KeyLimits)
        key = await self._change(self._store.change, name, body.model_dump(exclude_unset=True))
        return JSONResponse(describe_key(key))

    async def revoke(self, name: str) -> Response:
        """All processes refuse the key within seconds; its name stays taken."""
        return JSONResponse(describe_key(await self._change(self._store.revoke, name)))

    async def usage(self, name: str) -> Response:
        """Counts characters of running requests after their end."""
        key = await self._find(self._store.get, name)
        used, start, _ = await self._security.accounts.of(key).count_used()
        return JSONResponse(describe_usage(key, used, start))

    async def _read(self, request: Request, kind: type[AnyBody]) -> AnyBody:
        data, _ = await self._reader.read(request)
        try:
            return kind.model_validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"])) or "body"
            raise InvalidRequestError(field, first["msg"]) from error

    async def _find(self, call: Callable[..., T], *arguments: Any) -> T:
        try:
            return await ask(call, *arguments)
        except NoSuchKeyError as error:
            raise HTTPException(HTTPStatus.NOT_FOUND, str(error)) from error
        except KeyExistsError as error:
            raise HTTPException(HTTPStatus.CONFLICT, str(error)) from error

    async def _change(self, call: Callable[..., T], *arguments: Any) -> T:
        """Returns the result of a change, which this process applies at once."""
        result = await self._find(call, *arguments)
        await self._security.authenticator.refresh_stored()
        return result


def _describe_routes() -> dict[str, dict[str, Any]]:
    return {
        "list_keys": _description("Lists the API keys without their secrets"),
        "create": _description("Creates an API key; only this answer ever holds it", KeyBody),
        "get": _description("Returns an API key without its secret"),
        "change": _description("Changes the given limits of an API key", KeyLimits),
        "revoke": _description("Revokes an API key for ever"),
        "usage": _description("Returns the used characters of the current period"),
    }


def _description(summary: str, body: type[BaseModel] | None = None) -> dict[str, Any]:
    failures = problem_documentation(UnauthorizedError, InvalidRequestError)
    described: dict[str, Any] = {"summary": f"{summary}{_ADMIN}", "responses": failures}
    if body is not None:
        described["openapi_extra"] = json_body(body.model_json_schema())
    return described
