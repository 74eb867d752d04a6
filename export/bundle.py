"""The bundle: a folder with everything that serving one model needs, and the one contract between export and serve.

`manifest.json` describes the model and holds the sha256 of every other file; `Bundle.open` refuses a folder that does
not match it. This module reads bundles and seals new ones. It knows neither torch nor ONNX Runtime.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

MANIFEST_FILE = "manifest.json"
ENCODER_FILE = "encoder.onnx"
DECODER_FILE = "decoder.onnx"
WEIGHTS_FILE = "weights.bin"
TOKENIZER_FILE = "tokenizer.model"
GOLDEN_FILE = "golden.json"

# A name without a folder: a manifest must not lead out of its bundle.
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]


class BundleError(Exception):
    """The folder is not a bundle that can be served; the message names the file and what is wrong with it."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GoldenSentence(_Record):
    """A sentence and the exact answer of the trained model, computed by PyTorch at export time.

    Attributes:
        source: the text.
        source_ids: its tokens, the end token included.
        target_ids: tokens of the translation, the end token excluded.
        target: the translation as text.
    """

    source: str
    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    target: str


class GraphSignature(_Record):
    """Names of a graph's inputs and outputs, in order."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Provenance(_Record):
    """Where the model comes from: enough to train it again.

    Attributes:
        created: date and time of the export, ISO 8601, UTC.
        versions: version of each library that took part.
        training: the configuration that the model was trained with.
        steps: optimiser steps taken.
        scores: what was measured at export time, for example the share of identical sentences.
    """

    created: str
    versions: dict[str, str]
    training: dict[str, object]
    steps: int
    scores: dict[str, float]


class Manifest(_Record):
    """What `manifest.json` holds. Lengths are in tokens; `max_target_tokens` does not count the end token."""

    format_version: Literal[1] = 1
    name: str
    source_language: str
    target_language: str
    vocabulary_size: int = Field(gt=0)
    decoder_layers: int = Field(gt=0)
    heads: int = Field(gt=0)
    head_size: int = Field(gt=0)
    pad_id: int
    unk_id: int
    bos_id: int
    eos_id: int
    max_source_tokens: int = Field(gt=0)
    max_target_tokens: int = Field(gt=0)
    precision: Literal["fp32"]
    opset: int
    encoder: GraphSignature
    decoder: GraphSignature
    files: dict[FileName, str]
    provenance: Provenance


_GOLDEN = TypeAdapter(tuple[GoldenSentence, ...])


@dataclass(frozen=True, slots=True)
class Bundle:
    """An opened bundle whose files are what its manifest says."""

    folder: Path
    manifest: Manifest
    golden: tuple[GoldenSentence, ...]

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Opens and checks a bundle.

        Raises:
            BundleError: if the folder, the manifest or any file is missing or not as it should be.
        """
        if not folder.is_dir():
            raise BundleError(f"{folder}: no such folder, expected a bundle made by `dragoman export`")
        manifest = _read_manifest(folder / MANIFEST_FILE)
        for name, expected in manifest.files.items():
            _check_file(folder / name, expected)
        for name in (ENCODER_FILE, DECODER_FILE, WEIGHTS_FILE, TOKENIZER_FILE, GOLDEN_FILE):
            if name not in manifest.files:
                raise BundleError(f"{folder / MANIFEST_FILE}: files: {name} is not listed, expected its sha256")
        return cls(folder, manifest, _read_golden(folder / GOLDEN_FILE))

    @property
    def encoder_path(self) -> Path:
        """The graph that runs once per sequence."""
        return self.folder / ENCODER_FILE

    @property
    def decoder_path(self) -> Path:
        """The graph that runs once per target token."""
        return self.folder / DECODER_FILE

    @property
    def tokenizer_path(self) -> Path:
        """The SentencePiece model."""
        return self.folder / TOKENIZER_FILE


def write_golden(folder: Path, golden: tuple[GoldenSentence, ...]) -> None:
    """Writes the golden sentences of a bundle that is being made."""
    (folder / GOLDEN_FILE).write_bytes(_GOLDEN.dump_json(golden, indent=1))


def file_hashes(folder: Path) -> Mapping[str, str]:
    """Returns the sha256 of every file of a bundle that is being made, the manifest excluded."""
    return {path.name: _sha256(path) for path in sorted(folder.iterdir()) if path.name != MANIFEST_FILE}


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Seals a bundle: from here on `Bundle.open` accepts the folder."""
    (folder / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=1) + "\n")


def _read_manifest(path: Path) -> Manifest:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror}, expected a bundle made by `dragoman export`") from error
    except ValueError as error:
        raise BundleError(f"{path}: not JSON: {error}") from error
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        raise _explain(path, error) from error


def _read_golden(path: Path) -> tuple[GoldenSentence, ...]:
    try:
        return _GOLDEN.validate_json(path.read_bytes())
    except ValidationError as error:
        raise _explain(path, error) from error


def _explain(path: Path, error: ValidationError) -> BundleError:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    return BundleError(": ".join(part for part in (str(path), field, first["msg"]) if part))


def _check_file(path: Path, expected: str) -> None:
    if not path.is_file():
        raise BundleError(f"{path}: no such file, but the manifest lists it")
    actual = _sha256(path)
    if actual != expected:
        raise BundleError(f"{path}: sha256 is {actual}, but the manifest says {expected}: the file was changed")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
