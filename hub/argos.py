"""Packages of Argos Translate, by the public index."""

import os
import re
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from pydantic import BaseModel, TypeAdapter

from dragoman.hub.connection import HubAccess, read_answer, read_size
from dragoman.hub.download import RemoteFile
from dragoman.hub.names import ArgosModel, HubError
from dragoman.hub.offer import Offer

# The variable and the default of Argos Translate.
VARIABLE = "ARGOS_PACKAGE_INDEX"
INDEX = "https://raw.githubusercontent.com/argosopentech/argospm-index/main"
SUFFIX = ".argosmodel"
WEB = ("http", "https")
# File systems take names of 255 bytes, with the suffix of a part.
MAX_NAME_CHARACTERS = 60


class IndexEntry(BaseModel):
    """A package in the index."""

    package_version: str
    from_code: str | None = None
    to_code: str | None = None
    links: tuple[str, ...] = ()


_INDEX = TypeAdapter(tuple[IndexEntry, ...])


def find_package(reference: ArgosModel) -> Offer:
    """Returns the newest package of a pair, of which the index states neither license nor hash.

    Raises HubError if there is none, OfflineError if offline.
    """
    access = HubAccess(str(reference), f"the network and {VARIABLE}")
    address = f"{os.environ.get(VARIABLE) or INDEX}/index.json"
    found = [
        entry
        for entry in read_answer(access, address, _INDEX)
        if (entry.from_code, entry.to_code) == (reference.source, reference.target)
    ]
    links = [link for entry in sorted(found, key=_version, reverse=True) for link in entry.links if _is_web(link)]
    if not links:
        advice = "choose another model, `dragoman models --remote` lists some"
        raise HubError(f"{reference}: {address} has no package for these languages: {advice}")
    name = PurePosixPath(urlsplit(links[0]).path).name
    if not name.endswith(SUFFIX) or len(name) > MAX_NAME_CHARACTERS:
        problem = f"expected a file with the suffix {SUFFIX} and at most {MAX_NAME_CHARACTERS} characters"
        raise HubError(f"{reference}: {links[0]}: {problem}")
    return Offer(access=access, files=(RemoteFile(name, links[0], read_size(access, links[0])),), origin=links[0])


def _is_web(link: str) -> bool:
    try:
        return urlsplit(link).scheme in WEB
    except ValueError:
        return False


def _version(entry: IndexEntry) -> tuple[int, ...]:
    return tuple(int(part) if re.fullmatch(r"[0-9]{1,9}", part) else 0 for part in entry.package_version.split("."))
