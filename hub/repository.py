"""Repositories of the Hugging Face hub: which revision, which license, which files.

The library `huggingface_hub` reads the environment: HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_OFFLINE.
"""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hub.download import RemoteFile, download
from hub.names import HubError, RepositoryModel
from serve.bundle.files import read_json

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

Kind = Literal["marian", "multilingual", "t5", "ctranslate2"]

CONFIG = "config.json"
# Each group holds files of which a repository needs one, the preferred one first.
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
NEEDED: dict[Kind, tuple[tuple[str, ...], ...]] = {
    "marian": ((CONFIG,), ("vocab.json",), ("source.spm",), ("target.spm",), WEIGHTS),
    "multilingual": ((CONFIG,), ("sentencepiece.bpe.model",), WEIGHTS),
    "t5": ((CONFIG,), ("spiece.model",), WEIGHTS),
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


class OfflineError(HubError):
    """The hub was not asked, because HF_HUB_OFFLINE is set."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One commit of a repository.

    Attributes:
        commit: full hash.
        license: as the hub states it; None if it does not.
        files: those that the conversion reads.
    """

    reference: RepositoryModel
    kind: Kind
    commit: str
    license: str | None
    files: tuple[RemoteFile, ...]

    @property
    def origin(self) -> str:
        """Repository and commit."""
        return f"{self.reference.repository}@{self.commit}"

    @property
    def size_bytes(self) -> int:
        """Size of the files."""
        return sum(each.size_bytes or 0 for each in self.files)

    def fetch(self, folder: Path) -> None:
        """Downloads the files, the configuration first: an unsupported model costs a few kilobytes.

        Raises:
            HubError: if a download fails, or the configuration is that of another kind of model.
        """
        with explained(self.reference):
            download([each for each in self.files if each.name == CONFIG], folder)
            _check_type(self.reference, self.kind, folder / CONFIG)
            download(sorted(self.files, key=lambda each: each.size_bytes or 0), folder)


def find_snapshot(reference: RepositoryModel) -> Snapshot:
    """Returns the current commit of a repository's revision.

    Raises:
        HubError: if the hub has no such repository or revision, does not answer, or the repository lacks a file.
    """
    from huggingface_hub import HfApi, hf_hub_url  # noqa: PLC0415 - the library takes long to import

    hub = HfApi()
    with explained(reference):
        info = hub.model_info(reference.repository, revision=reference.revision, files_metadata=True)
    siblings = {each.rfilename: each for each in info.siblings or ()}
    kind = _kind(reference, siblings)
    commit = str(info.sha)
    headers = hub._build_hf_headers()  # noqa: SLF001 - the library has no public access to its token
    files = tuple(
        _remote_file(siblings[name], hf_hub_url(reference.repository, name, revision=commit), headers)
        for name in _wanted(kind, siblings)
    )
    return Snapshot(reference, kind, commit, _license(info.card_data), files)


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
        raise HubError(f"{reference}: the repository has no such revision, branch, tag or commit") from error
    except errors.RepositoryNotFoundError as error:
        problem = "neither a folder here nor a repository of the hub"
        raise HubError(f"{reference}: {problem}: correct the name; for a private repository, set HF_TOKEN") from error
    except errors.RemoteEntryNotFoundError as error:
        raise HubError(
            f"{reference}: a listed file is missing: {error.response.url}: choose another revision"
        ) from error
    except errors.OfflineModeIsEnabled as error:
        advice = "unset HF_HUB_OFFLINE, or pull it on a machine with network and copy its cache"
        raise OfflineError(f"{reference}: not installed, and HF_HUB_OFFLINE is set: {advice}") from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        raise HubError(f"{reference}: {error.response.url} answers with status {status}: try again later") from error
    except httpx2.TransportError as error:
        advice = "check the network and HF_ENDPOINT, then pull again: the download continues where it stopped"
        raise HubError(f"{reference}: no connection: {type(error).__name__}: {error}: {advice}") from error
