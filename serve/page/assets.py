"""Static files of a package folder, read once and compressed once, with entity tags (RFC 9110, section 8.8.3).

A thread compresses a file at its first request. Later requests neither open nor compress one.
"""

import asyncio
import gzip
import hashlib
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Request, Response

from serve.compression import compressed_from
from serve.kept_bytes import KeptBytes

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
    """A file: content, media type and entity tag."""

    content: KeptBytes
    media_type: str
    tag: str

    @classmethod
    def read(cls, file: Traversable) -> "Asset":
        """Reads a file whose suffix is in `MEDIA_TYPES`."""
        content = KeptBytes(file.read_bytes())
        tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
        media_type = MEDIA_TYPES[f".{file.name.rpartition('.')[2]}"]
        return cls(content, media_type, tag)

    @cached_property
    def compressed(self) -> KeptBytes:
        """The content, compressed by gzip. The first use takes up to a tenth of a second."""
        return KeptBytes(gzip.compress(self.content, COMPRESSION_LEVEL, mtime=0))

    async def answer(self, request: Request) -> Response:
        """Returns the file, or 304 if the client has this version."""
        headers = {**HEADERS, "etag": self.tag}
        if self.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if compressed_from(request.headers) is not None:
            compressed = await asyncio.to_thread(lambda: self.compressed)
            return Response(compressed, media_type=self.media_type, headers={**headers, "content-encoding": "gzip"})
        return Response(self.content, media_type=self.media_type, headers=headers)


def read_assets(package: str, folder: str) -> dict[str, Asset]:
    """Returns the files below a folder of a package by their paths, as in "js/main.js"."""
    return dict(_read(files(package).joinpath(folder), ""))


def _read(folder: Traversable, prefix: str) -> list[tuple[str, Asset]]:
    found: list[tuple[str, Asset]] = []
    for each in sorted(folder.iterdir(), key=lambda file: file.name):
        path = f"{prefix}{each.name}"
        if each.is_dir():
            found += _read(each, f"{path}/")
        elif f".{each.name.rpartition('.')[2]}" in MEDIA_TYPES:
            found.append((path, Asset.read(each)))
    return found


def add_route(router: APIRouter, path: str, asset: Asset) -> None:
    """Adds the route of a file to a router."""

    async def answer(request: Request) -> Response:
        return await asset.answer(request)

    router.get(path, include_in_schema=False)(answer)
