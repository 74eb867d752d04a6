"""Packages of Argos Translate, by the public index."""

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from hub.download import RemoteFile, describe_size, download
from hub.names import ArgosModel, HubError
from hub.repository import explained
from model.errors import first_problem

if TYPE_CHECKING:
    import httpx

# The variable and the default of Argos Translate.
VARIABLE = "ARGOS_PACKAGE_INDEX"
INDEX = "https://raw.githubusercontent.com/argosopentech/argospm-index/main"
TIMEOUT_SECONDS = 30
SUFFIX = ".argosmodel"
WEB = ("http", "https")


class IndexEntry(BaseModel):
    """A package in the index."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    package_version: str
    from_code: str | None = None
    to_code: str | None = None
    links: tuple[str, ...] = Field(())


_INDEX = TypeAdapter(tuple[IndexEntry, ...])


@dataclass(frozen=True, slots=True)
class Package:
    """A package of the index, which states neither license nor hash."""

    reference: ArgosModel
    file: RemoteFile

    license = None

    @property
    def origin(self) -> str:
        """Address of the package."""
        return self.file.url

    def fetch(self, folder: Path) -> None:
        """Downloads the package; raises HubError if that fails."""
        print(f"{self.reference}: downloads {describe_size([self.file])} from {self.origin}", flush=True)
        with explained(self.reference):
            download([self.file], folder)


def find_package(reference: ArgosModel) -> Package:
    """Returns the newest package for a pair of languages.

    Raises:
        HubError: if the index cannot be read or has no such package; OfflineError if it must not be asked.
    """
    _check_online(reference)
    address = f"{os.environ.get(VARIABLE) or INDEX}/index.json"
    found = [
        each
        for each in _read_index(reference, address)
        if (each.from_code, each.to_code) == (reference.source, reference.target)
    ]
    links = [
        link
        for each in sorted(found, key=_version, reverse=True)
        for link in each.links
        if urlsplit(link).scheme in WEB
    ]
    if not links:
        advice = "choose another model, `dragoman models --remote` lists some"
        raise HubError(f"{reference}: {address} has no package for these languages: {advice}")
    name = PurePosixPath(urlsplit(links[0]).path).name
    if not name.endswith(SUFFIX):
        raise HubError(f"{reference}: {links[0]}: expected a file with the suffix {SUFFIX}")
    size_text = _request(reference, "HEAD", links[0]).headers.get("content-length", "")
    return Package(reference, RemoteFile(name, links[0], int(size_text) if size_text.isdigit() else None))


def _check_online(reference: ArgosModel) -> None:
    from huggingface_hub import constants, errors  # noqa: PLC0415 - the library takes long to import

    with explained(reference):
        if constants.HF_HUB_OFFLINE:
            raise errors.OfflineModeIsEnabled


def _read_index(reference: ArgosModel, address: str) -> tuple[IndexEntry, ...]:
    try:
        return _INDEX.validate_json(_request(reference, "GET", address).content)
    except ValidationError as error:
        raise HubError(f"{reference}: {address}: not an index of packages: {first_problem(error)}") from error


def _request(reference: ArgosModel, method: str, address: str) -> "httpx.Response":
    import httpx  # noqa: PLC0415 - the library takes long to import

    try:
        response = httpx.request(method, address, timeout=TIMEOUT_SECONDS, follow_redirects=True)
        return response.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        advice = f"check the network, or set {VARIABLE} to a copy of the index"
        raise HubError(f"{reference}: {address}: {type(error).__name__}: {error}: {advice}") from error


def _version(entry: IndexEntry) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in entry.package_version.split("."))
