"""Which URLs call backs may go to: those whose scheme, host and port the operator lists."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from dragoman.serve.errors import ForbiddenError, InvalidRequestError
from dragoman.serve.host.files import FileError

MAX_URL_CHARACTERS = 2000
PORTS = {"https": 443, "http": 80}
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = rf"((?:{_LABEL}\.)*{_LABEL})(?::([1-9][0-9]{{0,4}}))?"
# No fragment and no user, of which browsers and servers read the end in different ways.
_URL = re.compile(rf"(https?)://{_HOST}([/?][!\"$-~]*)?", re.ASCII | re.IGNORECASE)
_FORM = f"expected https://HOST:PORT/PATH of up to {MAX_URL_CHARACTERS:,} visible characters, without user and fragment"


class CallbackUrl(NamedTuple):
    """A URL; `target` has path and query."""

    scheme: str
    host: str
    port: int
    target: str = "/"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}{self.target}"


def _parse(text: str) -> CallbackUrl | None:
    """Returns the parts of a URL; None: it has another form than ours."""
    found = _URL.fullmatch(text) if len(text) <= MAX_URL_CHARACTERS else None
    if found is None:
        return None
    scheme, host, port, target = (found[1].lower(), found[2].lower(), found[3], found[4] or "")
    url = CallbackUrl(scheme, host, int(port or PORTS[scheme]), f"/{target.removeprefix('/')}")
    # The form that the store keeps, with its port, is checked again before each call.
    return url if url.port < 1 << 16 and len(str(url)) <= MAX_URL_CHARACTERS else None


def _parse_entry(entry: str) -> CallbackUrl:
    """Returns an entry of the list, with a dot before a domain; raises FileError if it is invalid."""
    text = entry if "://" in entry else f"https://{entry}"
    url = _parse(text.replace("://*.", "://"))
    if url is None or url.target != "/":
        raise FileError(f"--callback-hosts: {entry!a}, expected HOST, HOST:PORT, *.DOMAIN or http://HOST:PORT")
    return url._replace(host=f".{url.host}") if "://*." in text else url


class CallbackHosts:
    """The list of the operator, as in `api.example.org`, `*.example.org:8443` and `http://queue.example.org`."""

    def __init__(self, entries: Iterable[str]) -> None:
        """Takes the entries; without one, all call backs are refused. Raises FileError if one is invalid."""
        self._allowed = frozenset(map(_parse_entry, entries))

    def check(self, text: str, *, permitted: bool = True) -> CallbackUrl:
        """Returns the parts of an allowed URL; raises InvalidRequestError, or ForbiddenError if none is `permitted`."""
        if not (self._allowed and permitted):
            raise ForbiddenError("callback: expected a server with --callback-hosts, and a key with callbacks=true")
        url = _parse(text)
        if url is None:
            raise InvalidRequestError("callback", f"{text[:64]!a}, {_FORM}")
        names = (url.host, *(url.host[dot.start() :] for dot in re.finditer(r"\.", url.host)))
        if self._allowed.isdisjoint(CallbackUrl(url.scheme, name, url.port) for name in names):
            shown = f"{url.scheme}://{url.host[:64]}:{url.port}"
            raise InvalidRequestError("callback", f"{shown}, expected one that the server's --callback-hosts names")
        return url
