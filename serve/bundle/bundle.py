"""Reads and seals bundles: folders with everything that serving one model needs.

`manifest.json` describes the model and holds the sha256 of every other file. `Bundle.open` rejects a folder that does
not match it. This module imports neither torch nor ONNX Runtime.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter, ValidationError

from serve.bundle.manifest import BundleDirection, GoldenSentence, Manifest, first_problem

MANIFEST_FILE = "manifest.json"
ENCODER_FILE = "encoder.onnx"
DECODER_FILE = "decoder.onnx"
ALIGNED_DECODER_FILE = "aligned_decoder.onnx"
LOG_PROBABILITIES_FILE = "log_probabilities.onnx"
TOPK_FILE = "topk.onnx"
WEIGHTS_FILE = "weights.bin"
GOLDEN_FILE = "golden.json"
GRAPH_FILES = (ENCODER_FILE, DECODER_FILE, LOG_PROBABILITIES_FILE, TOPK_FILE)
EARLIER_VERSIONS = (1, 2, 3, 4)


class BundleError(Exception):
    """The folder is not a valid bundle; the message names the file and the problem."""


_GOLDEN = TypeAdapter(tuple[GoldenSentence, ...])


@dataclass(frozen=True, slots=True)
class Bundle:
    """An opened bundle whose files match its manifest."""

    folder: Path
    manifest: Manifest
    golden: tuple[GoldenSentence, ...]

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Opens and checks a bundle.

        Raises:
            BundleError: if the folder, the manifest or a file is missing or invalid.
        """
        if not folder.is_dir():
            raise BundleError(f"{folder}: no such folder, expected a bundle made by `dragoman export`")
        manifest = _read_manifest(folder / MANIFEST_FILE)
        for name, expected in manifest.files.items():
            _check_file(folder / name, expected)
        expected_files = [*GRAPH_FILES, WEIGHTS_FILE, *manifest.tokenizer.files, GOLDEN_FILE]
        if manifest.alignment_heads:
            expected_files.append(ALIGNED_DECODER_FILE)
        for name in expected_files:
            if name not in manifest.files:
                raise BundleError(f"{folder / MANIFEST_FILE}: files: {name} is not listed, expected its sha256")
        return cls(folder, manifest, _read_golden(folder / GOLDEN_FILE, manifest.directions))

    @property
    def encoder_path(self) -> Path:
        """The graph that runs once per sequence."""
        return self.folder / ENCODER_FILE

    @property
    def decoder_path(self) -> Path:
        """The graph that runs once per target token."""
        return self.folder / DECODER_FILE

    @property
    def aligned_decoder_path(self) -> Path:
        """The decoder that also returns alignments; present if the manifest lists alignment heads."""
        return self.folder / ALIGNED_DECODER_FILE

    @property
    def log_probabilities_path(self) -> Path:
        """The graph from logits to log-probabilities."""
        return self.folder / LOG_PROBABILITIES_FILE

    @property
    def topk_path(self) -> Path:
        """The graph that finds the best tokens of each row."""
        return self.folder / TOPK_FILE


def write_golden(folder: Path, golden: tuple[GoldenSentence, ...]) -> None:
    """Writes the golden sentences of a new bundle."""
    (folder / GOLDEN_FILE).write_bytes(_GOLDEN.dump_json(golden, indent=1))


def file_hashes(folder: Path) -> Mapping[str, str]:
    """Returns the sha256 of every file of a new bundle except the manifest."""
    return {path.name: _sha256(path) for path in sorted(folder.iterdir()) if path.name != MANIFEST_FILE}


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes the manifest last, which completes a bundle: `Bundle.open` accepts the folder from then on."""
    (folder / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=1) + "\n")


def _read_manifest(path: Path) -> Manifest:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror}, expected a bundle made by `dragoman export`") from error
    except ValueError as error:
        raise BundleError(f"{path}: not JSON: {error}") from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if version in EARLIER_VERSIONS:
        raise BundleError(
            f"{path}: format_version: {version}: made by an earlier version of Dragoman: export the run again with"
            " `dragoman export RUN --out BUNDLE`"
        )
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        raise _explain(path, error) from error


def _read_golden(path: Path, directions: tuple[BundleDirection, ...]) -> tuple[GoldenSentence, ...]:
    try:
        golden = _GOLDEN.validate_json(path.read_bytes())
    except ValidationError as error:
        raise _explain(path, error) from error
    known = {(direction.source, direction.target) for direction in directions}
    for number, sentence in enumerate(golden):
        if (sentence.source_language, sentence.target_language) not in known:
            asked = f"{sentence.source_language}-{sentence.target_language}"
            raise BundleError(f"{path}: {number}: {asked}: expected one of {', '.join(map(str, directions))}")
    return golden


def _explain(path: Path, error: ValidationError) -> BundleError:
    return BundleError(f"{path}: {first_problem(error)}")


def _check_file(path: Path, expected: str) -> None:
    if not path.is_file():
        raise BundleError(f"{path}: no such file, although the manifest lists it")
    actual = _sha256(path)
    if actual != expected:
        raise BundleError(f"{path}: sha256 is {actual}, expected {expected} as in the manifest: the file was changed")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
