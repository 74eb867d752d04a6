"""Refuses requests that pages of other sites let a browser send, if the server has no keys.

A form or a simple script of any page can send a request without asking the server first. Keys are not sent by a
browser on its own: a page that has one may use it. Other clients than browsers send neither of the headers.
"""

from collections.abc import Collection

from starlette.datastructures import Headers

from dragoman.serve.errors import ForbiddenError

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES = frozenset({"same-origin", "none"})
_ANY = "*"


class CrossSiteGuard:
    """Checks the origin of requests that may change something."""

    def __init__(self, origins: Collection[str]) -> None:
        """Creates the guard; pages of `origins` may send any request, `*` is every origin."""
        self._origins = frozenset(origins)

    def check(self, method: str, headers: Headers) -> None:
        """Raises ForbiddenError if a page of another origin sends a request that is not safe."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if method in _SAFE_METHODS or _ANY in self._origins or origin in self._origins:
            return
        if site is not None:
            allowed = site in _OWN_SITES
        else:  # the browser is old, or the address is neither secure nor local
            allowed = origin is None or origin.partition("://")[2] == headers.get("host")
        if not allowed:
            shown = "unknown" if origin is None else ascii(origin[:64])
            raise ForbiddenError(f"origin: {shown}, expected this server or one of --cors-origins")
