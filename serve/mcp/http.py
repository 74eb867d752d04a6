"""The Model Context Protocol over HTTP, for clients of this machine that have the key."""

from hmac import compare_digest
from http import HTTPStatus

from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

HOST = "127.0.0.1"


def transport_security(origins: tuple[str, ...]) -> TransportSecuritySettings:
    """Returns checks against pages of other sites: only this machine's names as `Host`, only `origins` as `Origin`."""
    return TransportSecuritySettings(
        allowed_hosts=[f"{HOST}:*", "localhost:*"], allowed_origins=list(origins), enable_dns_rebinding_protection=True
    )


class RequireKey:
    """Refuses requests without the key before anything reads them."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        """Wraps an application of ASGI."""
        self._app = app
        self._expected = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes requests with the key on, and the events of the application's life."""
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not compare_digest(given, self._expected):
                problem = "authorization: expected Bearer and the key of --http-key\n"
                answer = PlainTextResponse(problem, HTTPStatus.UNAUTHORIZED, {"www-authenticate": "Bearer"})
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)
