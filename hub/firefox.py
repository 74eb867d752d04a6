"""Models of Firefox Translations, by the registry that Mozilla generates.

The registry has records of a pair of languages: architecture, status, measurements and files. A released record with
the best measured translations is the model of a pair. A copy of the registry is kept: it is read if the network fails
or if a new registry has another form.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pydantic import AliasPath, BaseModel, Field, ValidationError

from dragoman.hub.connection import HubAccess, TemporaryError, read_changed
from dragoman.hub.download import RemoteFile
from dragoman.hub.names import FIREFOX, FirefoxModel, HubError, Languages, with_script
from dragoman.hub.offer import Offer
from dragoman.hub.progress import report
from dragoman.hub.store import Store, write_atomically
from dragoman.model.errors import first_problem

# The address of a mirror, whose files are below the same address.
VARIABLE = "DRAGOMAN_FIREFOX_MODELS"
SETTINGS = f"the network and {VARIABLE}"
ADDRESS = "https://storage.googleapis.com/moz-fx-translations-data--303e-prod-translations-data"
REGISTRY = "db/models.json"
REGISTRY_SECONDS = 5.0
LICENSE = "MPL-2.0"
MAKERS = "made by: Mozilla and contributors, for Firefox Translations (https://github.com/mozilla/translations)"
ARCHITECTURES = ("tiny", "base-memory", "base")
RELEASED = ("Release", "Release Desktop", "Release Android")
STATUSES = (*RELEASED, "Nightly", None)
NEVER = "unreleased"
# The test set that all records have in common.
TEST_SET = "flores200-plus"
MODEL, SHORTLIST = "model", "lexicalShortlist"
VOCABULARIES = (("vocab",), ("srcVocab", "trgVocab"))
# The name of a file by its role in a record; the importer recognizes them.
NAMES = {
    MODEL: "model.intgemm.bin",
    "vocab": "vocab.spm",
    "srcVocab": "srcvocab.spm",
    "trgVocab": "trgvocab.spm",
    SHORTLIST: "lex.s2t.bin",
}
# A relative path without `..`.
_PATH = re.compile(r"\w[\w.@+-]*(?:/\w[\w.@+-]*)*\.gz", re.ASCII)


class _File(BaseModel):
    """A file of gzip."""

    path: str
    size_bytes: int | None = Field(None, alias="uncompressedSize")
    sha256: str | None = Field(None, alias="uncompressedHash")


class Record(BaseModel):
    """A model of the registry."""

    architecture: str
    source_language: str = Field(alias="sourceLanguage")
    target_language: str = Field(alias="targetLanguage")
    status: str | None = Field(alias="releaseStatus")
    files: dict[str, _File | None]
    # The registry's own measurements.
    chrf: float | None = Field(None, validation_alias=AliasPath("metrics", TEST_SET, "chrfpp"), allow_inf_nan=False)
    comet: float | None = Field(None, validation_alias=AliasPath("metrics", TEST_SET, "comet22"), allow_inf_nan=False)

    def __str__(self) -> str:
        return f"{self.architecture} ({self.status or NEVER})"

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target, as names have them."""
        return with_script(self.source_language), with_script(self.target_language)

    @property
    def size_bytes(self) -> int:
        """Size of the unpacked files that the conversion reads, as far as it is stated."""
        return sum(file.size_bytes or 0 for role, file in self.files.items() if role in NAMES and file is not None)

    def is_chosen(self, choice: str | None) -> bool:
        """Returns whether a name with this choice may mean the record."""
        if self.architecture not in ARCHITECTURES or self.status not in STATUSES:
            return False
        slug = (self.status or NEVER).lower().replace(" ", "-")
        return choice == slug or (self.status in RELEASED and choice in (None, self.architecture))


class Registry(BaseModel):
    """All records, and the address of their files."""

    address: str = Field(alias="baseUrl", pattern=r"^https?://")
    models: dict[str, tuple[Record, ...]]

    def pairs(self, choice: str | None = None) -> dict[tuple[str, str], list[Record]]:
        """Returns the records of each pair that a name with this choice may mean, the best measured one first."""
        found: dict[tuple[str, str], list[Record]] = {}
        records = [record for records in self.models.values() for record in records if record.is_chosen(choice)]
        for record in sorted(records, key=lambda record: (record.chrf or 0, record.comet or 0)):
            found.setdefault(record.languages, []).insert(0, record)
        return found


def find_student(store: Store, reference: FirefoxModel) -> Offer:
    """Returns the model of a name; raises HubError if the registry cannot be read or has no model of a known kind."""
    registry, pair = read_registry(store, str(reference)), (reference.source, reference.target)
    found = registry.pairs(reference.choice).get(pair)
    if found:
        files = tuple(_files(reference, registry.address, found[0]))
        choice = describe_choice(*found)
        content = "\n".join(f"{file.url} {file.sha256}" for file in files)
        return Offer(
            access=HubAccess(str(reference), SETTINGS),
            files=files,
            origin=f"{files[0].url}@{hashlib.sha256(content.encode()).hexdigest()[:12]}",
            license=LICENSE,
            languages=Languages(*pair),
            facts=(MAKERS, f"record: {choice}", *(f"{file.name}: unpacked from {file.url}" for file in files)),
            choice=choice,
        )
    others = [str(record) for records in registry.models.values() for record in records if record.languages == pair]
    if not others:
        advice = "choose another model, `dragoman models --remote` lists some"
        raise HubError(f"{reference}: {registry.address} has no model for these languages: {advice}")
    expected = f"expected one that is {reference.choice or 'released'}, of architecture {', '.join(ARCHITECTURES)}"
    advice = f"a name as {FIREFOX}{'-'.join(pair)}@nightly takes another status"
    raise HubError(f"{reference}: the registry has {', '.join(others)}: {expected}: {advice}")


def describe_choice(best: Record, *others: Record) -> str:
    """Returns which record of a pair is used, and why."""
    score = f"chrF++ {best.chrf:.1f} of {TEST_SET}" if best.chrf else "no measurement of any"
    return f"{best}, best of {len(others) + 1}: {score}" if others else str(best)


def _files(reference: FirefoxModel, address: str, record: Record) -> Iterator[RemoteFile]:
    files = {role: file for role, file in record.files.items() if file is not None}
    vocabulary = next((roles for roles in VOCABULARIES if files.keys() >= set(roles)), None)
    if vocabulary is None or MODEL not in files:
        raise HubError(f"{reference}: files: {', '.join(files)}: expected model and vocab, or srcVocab and trgVocab")
    if files[MODEL].size_bytes is None or files[MODEL].sha256 is None:
        raise HubError(f"{reference}: {MODEL}: expected uncompressedSize and uncompressedHash")
    for role in (MODEL, *vocabulary, *files.keys() & {SHORTLIST}):
        path, file = files[role].path, files[role]
        if not _PATH.fullmatch(path):
            raise HubError(f"{reference}: {role}: path: {path}: expected a relative path of a file *.gz")
        yield RemoteFile(NAMES[role], f"{address}/{path}", sha256=file.sha256, unpacked_bytes=file.size_bytes)


def read_kept(store: Store) -> Registry | None:
    """Returns the last good copy of the registry, without the network; None: there is none."""
    return _read_copy(store.registry(_url())).registry


def _mirror() -> str:
    return (os.environ.get(VARIABLE) or "").rstrip("/")


def _url() -> str:
    return f"{_mirror() or ADDRESS}/{REGISTRY}"


def read_registry(store: Store, model: str) -> Registry:
    """Returns the current registry, or the last good copy if that fails; `model` is the subject of messages.

    Raises HubError if there is no copy either; OfflineError if HF_HUB_OFFLINE is why.
    """
    url = _url()
    path = store.registry(url)
    kept = _read_copy(path)
    try:
        etag, content = read_changed(HubAccess(model, SETTINGS), url, (kept.etag, kept.content), REGISTRY_SECONDS)
        found = _parse(model, url, content)
        write_atomically(path, f"{etag}\n".encode() + content)
    except HubError as error:
        if kept.registry is None:
            raise
        problem = error.problem if isinstance(error, TemporaryError) else error
        moment = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        report(f"{problem}: the copy of {moment:%Y-%m-%d %H:%M} UTC is used")
        found = kept.registry
    return found.model_copy(update={"address": _mirror() or found.address.rstrip("/")})


def _parse(model: str, url: str, content: bytes) -> Registry:
    try:
        return Registry.model_validate_json(content)
    except ValidationError as error:
        problem = f"expected a registry of Firefox Translations: {first_problem(error)}"
        raise HubError(f"{model}: {url}: {problem}: check {VARIABLE}, or choose another model") from error


class _Copy(NamedTuple):
    """A kept registry; empty if there is none of a known form."""

    etag: str = ""
    content: bytes = b""
    registry: Registry | None = None


def _read_copy(path: Path) -> _Copy:
    try:
        etag, _, content = path.read_bytes().partition(b"\n")
        return _Copy(etag.decode(), content, Registry.model_validate_json(content))
    except (OSError, ValueError):
        return _Copy()
