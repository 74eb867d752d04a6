"""A hub on this machine: an HTTP server with the addresses of the Hugging Face hub and of two other sources of models.

These are an index of Argos packages and the registry of Firefox Translations. Small files have the object ids of git,
large ones are in LFS and on another address, as on the real hub.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit

from tests.support.firefox_registry import REGISTRY_PATH, FirefoxRegistry
from tests.support.http_serving import QuietHandler, serving

# Files of this size are in LFS.
MIN_LFS_BYTES = 10_000
TOKEN = "hf_token_of_the_test"  # noqa: S105 - no secret


@dataclass
class Repository:
    """A repository: files by commit, the newest last."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    license: str | None = "apache-2.0"
    gated: bool = False

    def commit(self, files: dict[str, bytes]) -> str:
        name = hashlib.sha1(repr((len(self.commits), sorted(files))).encode()).hexdigest()  # noqa: S324 - as git does
        self.commits[name] = files
        return name

    def resolve(self, revision: str) -> str | None:
        return list(self.commits)[-1] if revision == "main" else (revision if revision in self.commits else None)


@dataclass
class FakeHub:
    """What the hub has, and the requests that it got.

    Attributes:
        interruptions: bytes after which the hub ends the next responses with a large file.
        stalls: bytes after which the hub sends nothing more of the next responses with a large file.
        damaged: names of files that the hub sends with another content than it states.
        lost: names of files that the hub lists and does not have.
        requests: method, path and range of each request.
    """

    repositories: dict[str, Repository] = field(default_factory=dict)
    registry: FirefoxRegistry = field(default_factory=FirefoxRegistry)
    packages: dict[str, bytes] = field(default_factory=dict)
    interruptions: list[int] = field(default_factory=list)
    stalls: list[int] = field(default_factory=list)
    damaged: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    address: str = ""


def git_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0%b" % (len(content), content)).hexdigest()  # noqa: S324 - as git does


class _Handler(QuietHandler, BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def do_HEAD(self) -> None:
        """Answers without a body."""
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        self.hub.requests.append((self.command, path, self.headers.get("range")))
        parts = path.split("/")
        if parts[:2] == ["api", "models"]:
            self._info("/".join(parts[2:4]), parts[5] if len(parts) > 5 else "main")
        elif parts[0] == "lfs":
            self._large(parts[1])
        elif parts[0] == "firefox":
            self._student(path.removeprefix("firefox/"))
        elif path == "argos/index.json":
            self._json(self._index())
        elif parts[0] == "argos":
            self._file(self.hub.packages.get(parts[1]), {})
        elif len(parts) > 4 and parts[2] == "resolve":
            self._resolve("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        else:
            self._error(404, "RepoNotFound")

    def _repository(self, name: str, revision: str) -> tuple[Repository, str] | None:
        repository = self.hub.repositories.get(name)
        if repository is None:
            self._error(401, "RepoNotFound")
        elif repository.gated and self.headers.get("authorization") != f"Bearer {TOKEN}":
            self._error(403, "GatedRepo")
        elif (commit := repository.resolve(revision)) is None:
            self._error(404, "RevisionNotFound")
        else:
            return repository, commit
        return None

    def _info(self, name: str, revision: str) -> None:
        if (found := self._repository(name, revision)) is None:
            return
        repository, commit = found
        siblings = [_sibling(item, content) for item, content in repository.commits[commit].items()]
        card = {} if repository.license is None else {"license": repository.license}
        self._json({"id": name, "sha": commit, "siblings": siblings, "cardData": card, "tags": [], "private": False})

    def _resolve(self, name: str, revision: str, path: str) -> None:
        if (found := self._repository(name, revision)) is None:
            return
        repository, commit = found
        content = repository.commits[commit].get(path)
        if content is None or path in self.hub.lost:
            self._error(404, "EntryNotFound")
        elif len(content) < MIN_LFS_BYTES:
            self._file(self._sent(path, content), {"X-Repo-Commit": commit, "ETag": f'"{git_id(content)}"'})
        else:
            location = f"{self.hub.address}/lfs/{hashlib.sha256(content).hexdigest()}"
            self._head(302, {"Location": location, "X-Repo-Commit": commit})

    def _sent(self, path: str, content: bytes) -> bytes:
        return content[:-1] + bytes([content[-1] ^ 1]) if path in self.hub.damaged else content

    def _large(self, digest: str) -> None:
        commits = (files for repository in self.hub.repositories.values() for files in repository.commits.values())
        found = (
            self._sent(path, content)
            for files in commits
            for path, content in files.items()
            if hashlib.sha256(content).hexdigest() == digest
        )
        self._file(next(found, None), {})

    def _student(self, path: str) -> None:
        if path == REGISTRY_PATH:
            content = self.hub.registry.document(f"{self.hub.address}/firefox")
            etag = f'"{git_id(content)}"'
            if self.headers.get("if-none-match") == etag:
                self._head(304, {"ETag": etag})
            else:
                self._file(content, {"ETag": etag})
        else:
            self._file(None if path in self.hub.lost else self.hub.registry.files.get(path), {})

    def _file(self, content: bytes | None, headers: dict[str, str]) -> None:
        if content is None:
            self._error(404, "EntryNotFound")
            return
        start = int((self.headers.get("range") or "bytes=0-").removeprefix("bytes=").split("-")[0])
        body = content[start:]
        if start:
            headers = {**headers, "Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
        self._head(206 if start else 200, headers, len(body))
        if self.command == "HEAD":
            return
        if self.hub.stalls and len(content) >= MIN_LFS_BYTES:
            self.wfile.write(body[: self.hub.stalls.pop(0)])
            self.wfile.flush()
            self.rfile.read(1)  # until the client closes the connection
            return
        if self.hub.interruptions and len(content) >= MIN_LFS_BYTES:
            body = body[: self.hub.interruptions.pop(0)]
            self.close_connection = True
        self.wfile.write(body)

    def _index(self) -> list[dict[str, object]]:
        names = (name.removesuffix(".argosmodel").split("-") for name in self.hub.packages)
        return [
            {
                "package_version": version.replace("_", "."),
                "from_code": pair.split("_")[0],
                "to_code": pair.split("_")[1],
                "links": ["ipfs://none", f"{self.hub.address}/argos/translate-{pair}-{version}.argosmodel"],
            }
            for _, pair, version in names
        ]

    def _json(self, content: object) -> None:
        body = json.dumps(content).encode()
        self._head(200, {"Content-Type": "application/json"}, len(body))
        if self.command != "HEAD":
            self.wfile.write(body)

    def _error(self, status: int, code: str) -> None:
        self._head(status, {"X-Error-Code": code})

    def _head(self, status: int, headers: dict[str, str], length: int = 0) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()


def _sibling(name: str, content: bytes) -> dict[str, object]:
    large = len(content) >= MIN_LFS_BYTES
    pointer = hashlib.sha256(content).hexdigest()
    lfs = {"sha256": pointer, "size": len(content), "pointerSize": 134}
    blob = git_id(pointer.encode() if large else content)
    return {"rfilename": name, "size": len(content), "blobId": blob, **({"lfs": lfs} if large else {})}


@contextmanager
def run_hub() -> Iterator[FakeHub]:
    """Runs a hub that has nothing."""
    hub = FakeHub()
    with serving(type("Handler", (_Handler,), {"hub": hub})) as hub.address:
        yield hub
