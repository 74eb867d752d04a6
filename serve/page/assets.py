"""Static files of a package folder, read once and compressed once, with entity tags (RFC 9110, section 8.8.3).

A thread reads and compresses a file at its first request. Later requests neither open nor compress one. A server whose
pages that no client opens keeps no file in memory.
"""

import asyncio
import gzip
import hashlib
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from dragoman.serve.http.compression import compressed_from
from dragoman.serve.http.kept_bytes import KeptBytes

# Only files of this origin; no inline scripts or styles, no frames around the page (CSP Level 3).
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Browsers ask each time whether a file has changed: a new version of the server is seen at once.
HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "referrer-policy": "no-referrer",
    "vary": "accept-encoding",
    "x-content-type-options": "nosniff",
}
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}
COMPRESSION_LEVEL = 9


@dataclass(frozen=True)
class Asset:
    """A file whose suffix is in `MEDIA_TYPES`."""

    file: Path

    @property
    def media_type(self) -> str:
        """The type of the content."""
        return MEDIA_TYPES[self.file.suffix]

    @cached_property
    def content(self) -> KeptBytes:
        """The content."""
        return KeptBytes(self.file.read_bytes())

    @cached_property
    def tag(self) -> str:
        """The entity tag of the content."""
        return f'"{hashlib.sha256(self.content).hexdigest()[:20]}"'

    @cached_property
    def compressed(self) -> KeptBytes:
        """The content, compressed by gzip. The first use takes up to a tenth of a second."""
        return KeptBytes(gzip.compress(self.content, COMPRESSION_LEVEL, mtime=0))

    async def answer(self, request: Request) -> Response:
        """Returns the file, or 304 if the client has this version."""
        headers = {**HEADERS, "etag": await asyncio.to_thread(lambda: self.tag)}
        if self.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if compressed_from(request.headers) is not None:
            compressed = await asyncio.to_thread(lambda: self.compressed)
            return Response(compressed, media_type=self.media_type, headers={**headers, "content-encoding": "gzip"})
        return Response(self.content, media_type=self.media_type, headers=headers)


def find_assets(package: str, folder: str) -> dict[str, Asset]:
    """Returns a folder's files by path, without importing its package; raises ModuleNotFoundError without it."""
    spec = find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(package)
    root = Path(spec.submodule_search_locations[0], folder)
    found = (path for path in sorted(root.rglob("*")) if path.suffix in MEDIA_TYPES)
    return {result.relative_to(root).as_posix(): Asset(result) for result in found}


ROOT = "/"
DOCS_PATH = "/docs"
_INDEX = "index.html"


@dataclass(frozen=True, slots=True)
class StaticFiles:
    """The files by path, and those paths that need no key: they hold no secret, and a page asks for the key itself."""

    files: dict[str, Asset]
    open_paths: frozenset[str]


def build_static(*, page: bool) -> StaticFiles:
    """Returns the files of the documentation and, if `page`, of the page."""
    assets = {f"{DOCS_PATH}/{name}": asset for name, asset in find_assets("fastapi_swagger", "resources").items()}
    assets |= {f"{DOCS_PATH}/{name}": asset for name, asset in find_assets("dragoman.serve.page", "docs").items()}
    if page:
        assets |= {f"/page/{name}": asset for name, asset in find_assets("dragoman.serve.page", "static").items()}
        assets[ROOT] = assets.pop(f"/page/{_INDEX}")
    # The documentation is as open as the document that it shows.
    documentation = assets.pop(f"{DOCS_PATH}/{_INDEX}")
    return StaticFiles({**assets, DOCS_PATH: documentation}, frozenset(assets))
