"""Repositories of the Hugging Face hub: their revisions, licenses and files.

The library `huggingface_hub` reads the environment: HF_ENDPOINT, HF_TOKEN, HF_HOME.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import yaml
from pydantic import BaseModel, Field, TypeAdapter

from dragoman.export.imports.shards import WEIGHT_FILES, is_index, read_index
from dragoman.hub.connection import HubAccess, StatusError, read_answer
from dragoman.hub.download import RemoteFile, describe_size, download
from dragoman.hub.names import HubError, RepositoryModel
from dragoman.hub.offer import Offer
from dragoman.hub.progress import report
from dragoman.serve.bundle.files import one_line, read_json

Kind = Literal["marian", "multilingual", "t5", "ctranslate2"]

CONFIG = "config.json"
SUPPORTED = (
    "expected a Marian checkpoint, as OPUS-MT has, a checkpoint of M2M100, NLLB-200, SMaLL-100, mBART-50, T5 or "
    "MADLAD-400, or a CTranslate2 model; see docs/import.md"
)

OTHER_REVISION = "choose another revision"


class KindFiles(BaseModel):
    """The files of a kind of model; `repository.yaml` explains the fields."""

    decided_by: str
    needed: tuple[str, ...]
    optional: tuple[str, ...]
    types: tuple[str, ...] = ()

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """The groups of files of which a repository needs one, the preferred one first."""
        return [*((name,) for name in self.needed), *([WEIGHT_FILES] if self.types else [])]


KINDS = TypeAdapter(dict[Kind, KindFiles]).validate_python(
    yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
)


class _Lfs(BaseModel):
    """Where the hub keeps a large file."""

    sha256: str | None = None


class _Sibling(BaseModel):
    """A file of a repository."""

    rfilename: str
    size: int | None = None
    blob_id: str | None = Field(None, alias="blobId")
    lfs: _Lfs | None = None


class _Answer(BaseModel):
    """What the API of the hub states about a revision of a repository."""

    sha: str = Field(pattern=r"^[0-9A-Za-z]{1,64}$")
    siblings: tuple[_Sibling, ...] = ()
    card: dict[str, Any] | None = Field(None, alias="cardData")


_ANSWER = TypeAdapter(_Answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Offer):
    """One commit of a repository, with its page; `files` lack the shards that an index of `available` names."""

    reference: RepositoryModel
    page: str
    kind: Kind
    available: Mapping[str, RemoteFile]

    def fetch(self, folder: Path) -> Path:
        """Downloads the files, the configuration first: an unsupported model costs a few kilobytes.

        Returns their folder.

        Raises:
            HubError: if a download fails, the configuration is that of another kind of model, or a shard is missing.
        """
        with _explained(self.reference, self.page):
            download(self.access, [file for file in self.files if file.name == CONFIG], folder)
            _check_type(self.reference, self.kind, folder / CONFIG)
            indexes = [file for file in self.files if is_index(file.name)]
            download(self.access, indexes, folder)
            files = [*self.files, *(shard for index in indexes for shard in self._shards(folder / index.name))]
            report(f"{self.reference}: downloads {describe_size(files)} from {self.origin}")
            download(self.access, sorted(files, key=lambda file: file.size_bytes or 0), folder)
        return folder

    def _shards(self, index: Path) -> Iterator[RemoteFile]:
        try:
            names = read_index(index)
        except ValueError as error:
            raise HubError(f"{self.reference}: {index.name}: {error}") from error
        for name in sorted(names):
            if name not in self.available:
                raise HubError(f"{self.reference}: has no file {name}, which {index.name} names: {OTHER_REVISION}")
            yield self.available[name]


def find_snapshot(reference: RepositoryModel) -> Snapshot:
    """Returns the current commit of a revision; raises HubError if there is none, or it lacks a file."""
    from huggingface_hub import constants, get_token  # noqa: PLC0415 - the library takes long to import

    token = get_token()
    headers = {"authorization": f"Bearer {token}"} if token else {}
    access = HubAccess(str(reference), "the network and HF_ENDPOINT", headers)
    page = f"{constants.ENDPOINT}/{reference.repository}"
    revision = "" if reference.revision is None else f"/revision/{quote(reference.revision, safe='')}"
    with _explained(reference, page):
        address = f"{constants.ENDPOINT}/api/models/{reference.repository}{revision}?blobs=true"
        answer = read_answer(access, address, _ANSWER)
    available = {
        file.rfilename: RemoteFile(
            file.rfilename,
            f"{page}/resolve/{answer.sha}/{quote(file.rfilename)}",
            file.size,
            file.lfs.sha256 if file.lfs else None,
            # The object id of a file in LFS is that of its pointer.
            None if file.lfs else file.blob_id,
        )
        for file in answer.siblings
    }
    kind = _kind(reference, available)
    files = tuple(available[name] for name in _wanted(kind, available))
    card = answer.card or {}
    # A license outside the hub's list has a name of its own.
    stated = card.get("license_name") or card.get("license")
    return Snapshot(
        access=access,
        files=files,
        origin=f"{reference.repository}@{answer.sha}",
        license=one_line(stated) if isinstance(stated, str) else None,
        facts=(f"page: {page}",),
        reference=reference,
        page=page,
        kind=kind,
        available=available,
    )


def _kind(reference: RepositoryModel, names: Collection[str]) -> Kind:
    kind = kind_of(names)
    for group in KINDS[kind].groups:
        if not any(name in names for name in group):
            raise HubError(f"{reference}: has no file {' or '.join(group)}: {SUPPORTED}")
    return kind


def kind_of(names: Collection[str]) -> Kind:
    """Returns the kind of a model with a configuration of these files."""
    return next((kind for kind, files in KINDS.items() if files.decided_by in names), "marian")


def _wanted(kind: Kind, names: Collection[str]) -> Iterator[str]:
    for group in KINDS[kind].groups:
        yield next(name for name in group if name in names)
    yield from (name for name in KINDS[kind].optional if name in names)


def _check_type(reference: RepositoryModel, kind: Kind, path: Path) -> None:
    try:
        content = read_json(path)
    except ValueError as error:
        path.unlink()
        raise HubError(f"{reference}: {CONFIG}: not JSON: {error}: {OTHER_REVISION}") from error
    model_type = content.get("model_type") if isinstance(content, dict) else None
    types = KINDS[kind].types
    if types and model_type not in types:
        raise HubError(f"{reference}: {CONFIG}: model_type: {json.dumps(model_type)}: {SUPPORTED}")


@contextmanager
def _explained(reference: RepositoryModel, page: str) -> Iterator[None]:
    """Explains why the hub rejects a request: raises HubError with what to do instead of a StatusError."""
    try:
        yield
    except StatusError as error:
        is_file = "/resolve/" in error.address
        problem = None
        if error.code == "GatedRepo":
            advice = f"accept its conditions on {page}, then set HF_TOKEN to a token of your account"
            problem = f"the repository is gated: {advice}"
        elif error.code == "RevisionNotFound":
            problem = "the repository has no such revision, branch, tag or commit: correct what follows the @"
        elif error.code == "EntryNotFound" or (is_file and error.status == HTTPStatus.NOT_FOUND):
            problem = f"a listed file is missing: {error.address}: {OTHER_REVISION}"
        elif error.code == "RepoNotFound" or error.status == HTTPStatus.NOT_FOUND:
            advice = "correct the name; for a private repository, set HF_TOKEN"
            problem = f"neither a folder here nor a repository of the hub: {advice}"
        if problem is None:
            raise
        raise HubError(f"{reference}: {problem}") from error
