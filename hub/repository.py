"""Repositories of the Hugging Face hub: which revision, which license, which files.

The library `huggingface_hub` reads the environment: HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_OFFLINE.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from export.imports.shards import WEIGHT_FILES, is_index, read_index
from hub.download import RemoteFile, describe_size, download
from hub.names import HubError, RepositoryModel
from serve.bundle.files import read_json

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

Kind = Literal["marian", "multilingual", "t5", "ctranslate2"]

CONFIG = "config.json"
# Each group holds files of which a repository needs one, the preferred one first.
NEEDED: dict[Kind, tuple[tuple[str, ...], ...]] = {
    "marian": ((CONFIG,), ("vocab.json",), ("source.spm",), ("target.spm",), WEIGHT_FILES),
    "multilingual": ((CONFIG,), ("sentencepiece.bpe.model",), WEIGHT_FILES),
    "t5": ((CONFIG,), ("spiece.model",), WEIGHT_FILES),
    "ctranslate2": ((CONFIG,), ("model.bin",)),
}
OPTIONAL: dict[Kind, tuple[str, ...]] = {
    "marian": ("generation_config.json", "tokenizer_config.json", "target_vocab.json"),
    "multilingual": ("generation_config.json", "tokenizer_config.json", "vocab.json", "tokenization_small100.py"),
    "t5": ("generation_config.json", "tokenizer_config.json"),
    "ctranslate2": (
        *(f"{each}_vocabulary.{suffix}" for each in ("shared", "source", "target") for suffix in ("json", "txt")),
        *("source.spm", "target.spm", "sentencepiece.model", "sentencepiece.bpe.model", "tokenizer.model", "spm.model"),
        "spiece.model",
    ),
}
# Files that tell the kind of a model, the deciding one first.
KIND_OF_FILE: dict[str, Kind] = {
    "model.bin": "ctranslate2",
    "sentencepiece.bpe.model": "multilingual",
    "spiece.model": "t5",
}
FULL_COMMIT = 40
# The `model_type` in the configuration of a checkpoint.
MODEL_TYPES: dict[Kind, tuple[str, ...]] = {
    "marian": ("marian",),
    "multilingual": ("m2m_100", "mbart"),
    "t5": ("t5", "mt5"),
}
SUPPORTED = (
    "expected a Marian checkpoint, as OPUS-MT has, a checkpoint of M2M100, NLLB-200, SMaLL-100, mBART-50, T5 or "
    "MADLAD-400, or a CTranslate2 model; see docs/import.md"
)

OTHER_REVISION = "choose another revision"


class OfflineError(HubError):
    """The hub was not asked, because HF_HUB_OFFLINE is set."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One commit of a repository.

    Attributes:
        commit: full hash.
        license: as the hub states it; None if it does not.
        files: those that the conversion reads, without the shards that an index names.
        available: all files by name.
    """

    reference: RepositoryModel
    kind: Kind
    commit: str
    license: str | None
    files: tuple[RemoteFile, ...]
    available: Mapping[str, RemoteFile]

    @property
    def origin(self) -> str:
        """Repository and commit."""
        return f"{self.reference.repository}@{self.commit}"

    def fetch(self, folder: Path) -> None:
        """Downloads the files, the configuration first: an unsupported model costs a few kilobytes.

        Raises:
            HubError: if a download fails, the configuration is that of another kind of model, or a shard is missing.
        """
        with explained(self.reference):
            download([each for each in self.files if each.name == CONFIG], folder)
            _check_type(self.reference, self.kind, folder / CONFIG)
            indexes = [each for each in self.files if is_index(each.name)]
            download(indexes, folder)
            files = [*self.files, *(shard for index in indexes for shard in self._shards(folder / index.name))]
            print(f"{self.reference}: downloads {describe_size(files)} from {self.origin}", flush=True)
            download(sorted(files, key=lambda each: each.size_bytes or 0), folder)

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
    """Returns the current commit of a repository's revision.

    Raises:
        HubError: if the hub has no such repository or revision, does not answer, or the repository lacks a file.
    """
    from huggingface_hub import HfApi, hf_hub_url  # noqa: PLC0415 - the library takes long to import

    hub = HfApi()
    with explained(reference):
        info = hub.model_info(reference.repository, revision=reference.revision, files_metadata=True)
    commit = str(info.sha)
    headers = hub._build_hf_headers()  # noqa: SLF001 - the library has no public access to its token
    available = {
        each.rfilename: _remote_file(each, hf_hub_url(reference.repository, each.rfilename, revision=commit), headers)
        for each in info.siblings or ()
    }
    kind = _kind(reference, available)
    files = tuple(available[name] for name in _wanted(kind, available))
    return Snapshot(reference, kind, commit, _license(info.card_data), files, available)


def _license(card: object) -> str | None:
    """Returns the name of a license outside the hub's list, else its identifier, from the metadata of a model card."""
    stated = getattr(card, "license_name", None) or getattr(card, "license", None)
    return stated if isinstance(stated, str) else None


def _kind(reference: RepositoryModel, names: Collection[str]) -> Kind:
    kind = kind_of(names)
    for group in NEEDED[kind]:
        if not any(name in names for name in group):
            raise HubError(f"{reference}: has no file {' or '.join(group)}: {SUPPORTED}")
    return kind


def kind_of(names: Collection[str]) -> Kind:
    """Returns the kind of a model with a configuration of these files."""
    return next((kind for file, kind in KIND_OF_FILE.items() if file in names), "marian")


def _wanted(kind: Kind, names: Collection[str]) -> Iterator[str]:
    for group in NEEDED[kind]:
        yield next(name for name in group if name in names)
    yield from (name for name in OPTIONAL[kind] if name in names)


def _remote_file(sibling: "RepoSibling", url: str, headers: dict[str, str]) -> RemoteFile:
    sha256 = sibling.lfs.sha256 if sibling.lfs else None
    # The object id of a file in LFS is that of its pointer.
    git_sha1 = None if sibling.lfs else sibling.blob_id
    return RemoteFile(sibling.rfilename, url, sibling.size, sha256, git_sha1, headers)


def _check_type(reference: RepositoryModel, kind: Kind, path: Path) -> None:
    try:
        content = read_json(path)
    except ValueError as error:
        raise HubError(f"{reference}: {CONFIG}: not JSON: {error}") from error
    model_type = content.get("model_type") if isinstance(content, dict) else None
    if kind in MODEL_TYPES and model_type not in MODEL_TYPES[kind]:
        raise HubError(f"{reference}: {CONFIG}: model_type: {json.dumps(model_type)}: {SUPPORTED}")


@contextmanager
def explained(reference: object) -> Iterator[None]:
    """Converts the errors of the library and of the network.

    Raises:
        HubError: instead, with what to do.
    """
    import httpx2  # noqa: PLC0415 - the library takes long to import
    from huggingface_hub import constants, errors  # noqa: PLC0415

    try:
        yield
    except errors.GatedRepoError as error:
        page = f"{constants.ENDPOINT}/{getattr(reference, 'repository', reference)}"
        advice = f"accept its conditions on {page}, then set HF_TOKEN to a token of your account"
        raise HubError(f"{reference}: the repository is gated: {advice}") from error
    except errors.RevisionNotFoundError as error:
        problem = "the repository has no such revision, branch, tag or commit"
        raise HubError(f"{reference}: {problem}: correct what follows the @") from error
    except errors.RepositoryNotFoundError as error:
        problem = "neither a folder here nor a repository of the hub"
        raise HubError(f"{reference}: {problem}: correct the name; for a private repository, set HF_TOKEN") from error
    except errors.RemoteEntryNotFoundError as error:
        raise HubError(f"{reference}: a listed file is missing: {error.response.url}: {OTHER_REVISION}") from error
    except errors.OfflineModeIsEnabled as error:
        advice = (
            "unset HF_HUB_OFFLINE, or copy its bundle from a machine with network: `dragoman pull --to FOLDER NAME`"
        )
        raise OfflineError(f"{reference}: not installed, and HF_HUB_OFFLINE is set: {advice}") from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        raise HubError(f"{reference}: {error.response.url} answers with status {status}: try again later") from error
    except httpx2.TransportError as error:
        advice = "check the network and HF_ENDPOINT, then pull again: the download continues where it stopped"
        raise HubError(f"{reference}: no connection: {type(error).__name__}: {error}: {advice}") from error
