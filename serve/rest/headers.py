"""The header of a request as a dictionary. Starlette compares all fields for each look-up."""

from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

# Key of the request state: the `DecodedHeaders`.
HEADERS = "headers"


class DecodedHeaders(Headers):
    """The fields of a header by name; of several with one name, `get` returns the first."""

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        super().__init__(raw=raw)
        self._first = dict(reversed(raw))

    def get(self, key: str, default: Any = None) -> Any:
        """Returns the first value."""
        value = self._first.get(key.lower().encode("latin-1"))
        return default if value is None else value.decode("latin-1")

    def getlist(self, key: str) -> list[str]:
        """Returns all values."""
        if len(self._first) < len(self.raw):
            return super().getlist(key)
        value = self.get(key)
        return [] if value is None else [value]


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
