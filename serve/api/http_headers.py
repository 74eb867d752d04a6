"""The header of a request, decoded once. Starlette encodes a name and compares all fields for each look-up."""

from typing import Any

from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import Scope

# Key of the request state: the `DecodedHeaders`.
HEADERS = "headers"


class DecodedHeaders(Headers):
    """The fields of a header by name; of several with one name, `get` returns the first."""

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        super().__init__(raw=raw)
        self._first = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(raw)}

    def get(self, key: str, default: Any = None) -> Any:
        """Returns the first value."""
        return self._first.get(key.lower(), default)

    def getlist(self, key: str) -> list[str]:
        """Returns all values."""
        return super().getlist(key) if key.lower() in self._first else []


def headers_of(scope: Scope) -> DecodedHeaders:
    """Returns the header of a request."""
    state = scope.setdefault("state", {})
    headers: DecodedHeaders | None = state.get(HEADERS)
    if headers is None:
        headers = state[HEADERS] = DecodedHeaders(scope["headers"])
    return headers


class HttpRequest(Request):
    """A request whose handlers share the decoded header."""

    @property
    def headers(self) -> Headers:
        """The header."""
        return headers_of(self.scope)
