"""Reads and seals bundles: folders with everything that serving one model needs.

`manifest.json` describes the model and holds the sha256 of every other file. `Bundle.open` rejects a folder that does
not match it. This module imports neither torch nor ONNX Runtime.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, TypeAdapter, ValidationError

from dragoman.model.errors import UserError, first_problem
from dragoman.serve.bundle.directions import check_golden
from dragoman.serve.bundle.files import one_line, read_file, read_json, sha256_of
from dragoman.serve.bundle.manifest import GoldenSentence, Manifest
from dragoman.serve.bundle.shortlist import Shortlist, ShortlistError, read_shortlist

MANIFEST_FILE = "manifest.json"
ENCODER_FILE = "encoder.onnx"
DECODER_FILE = "decoder.onnx"
ALIGNED_DECODER_FILE = "aligned_decoder.onnx"
WEIGHTS_FILE = "weights.bin"
GOLDEN_FILE = "golden.json"
CHOOSE_FILE = "choose.onnx"
# Likely target tokens for each source token, in Marian's format, of a model that has them.
SHORTLIST_FILE = "shortlist.bin"
GRAPH_FILES = (ENCODER_FILE, DECODER_FILE)
NATIVE_GRAPH_FILES = (ENCODER_FILE, DECODER_FILE, CHOOSE_FILE)
# Values of fields that only earlier versions wrote.
EARLIER: dict[str, Collection[object]] = {"format_version": range(1, 6), "variant": ("portable",)}
# The largest known manifest has less than 100 kB.
MAX_MANIFEST_BYTES = 8 << 20


class BundleError(UserError):
    """The folder is not a valid bundle; the message is one line that names the file and the problem."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


@contextmanager
def damage_explained(path: Path, *known: type[Exception]) -> Iterator[None]:
    """Raises a BundleError in place of any but the known errors: libraries raise any type for damaged files."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (BundleError, *known)):
            raise
        raise BundleError(f"{path}: cannot be used: {type(error).__name__}: {error}") from error


# A load translates all golden sentences: this number takes seconds. An exported bundle has a few per direction.
MAX_GOLDEN_SENTENCES = 4096
_GOLDEN = TypeAdapter(Annotated[tuple[GoldenSentence, ...], Field(max_length=MAX_GOLDEN_SENTENCES)])


@dataclass(frozen=True, slots=True)
class Bundle:
    """An opened bundle whose files match its manifest."""

    folder: Path
    manifest: Manifest
    golden: tuple[GoldenSentence, ...]

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Opens and checks a bundle; raises BundleError if the folder, the manifest or a file is missing or invalid."""
        manifest = _read_manifest(folder / MANIFEST_FILE)
        for name, expected in manifest.files.items():
            _check_file(folder / name, expected)
        graphs = GRAPH_FILES if manifest.cache is None else NATIVE_GRAPH_FILES
        expected_files = [*graphs, WEIGHTS_FILE, *manifest.tokenizer.files, GOLDEN_FILE]
        if manifest.alignment_heads and manifest.cache is None:
            expected_files.append(ALIGNED_DECODER_FILE)
        if manifest.shortlist is not None:
            expected_files.append(SHORTLIST_FILE)
        for name in expected_files:
            if name not in manifest.files:
                raise BundleError(f"{folder / MANIFEST_FILE}: files: {name} is not listed, expected its sha256")
        bundle = cls(folder, manifest, _read_golden(folder / GOLDEN_FILE, manifest))
        bundle.shortlist()
        return bundle

    def shortlist(self) -> Shortlist | None:
        """Maps the candidates of translations into memory; None: there are none. Raises BundleError if damaged."""
        if self.manifest.shortlist is None:
            return None
        path, tokens = self.folder / SHORTLIST_FILE, self.manifest.vocabulary_size
        try:
            return read_shortlist(path, tokens, tokens)
        except OSError as error:
            raise BundleError(f"{path}: {error.strerror}") from error
        except ShortlistError as error:
            raise BundleError(str(error)) from error

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
    def choose_path(self) -> Path:
        """The native graph that finds the best tokens of changed logits."""
        return self.folder / CHOOSE_FILE


def write_golden(folder: Path, golden: tuple[GoldenSentence, ...]) -> None:
    """Writes the golden sentences of a new bundle."""
    (folder / GOLDEN_FILE).write_bytes(_GOLDEN.dump_json(golden, indent=1))


def file_hashes(folder: Path) -> Mapping[str, str]:
    """Returns the sha256 of every file of a new bundle except the manifest."""
    return {path.name: sha256_of(path) for path in sorted(folder.iterdir()) if path.name != MANIFEST_FILE}


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes the manifest last, which completes a bundle: `Bundle.open` accepts the folder from then on."""
    (folder / MANIFEST_FILE).write_bytes(manifest_bytes(manifest))


def manifest_bytes(manifest: Manifest) -> bytes:
    """Returns the content of the file of a manifest."""
    return f"{manifest.model_dump_json(indent=1)}\n".encode()


def _read_manifest(path: Path) -> Manifest:
    try:
        content = read_json(path, MAX_MANIFEST_BYTES)
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror}, expected a bundle made by `dragoman export`") from error
    except ValueError as error:
        raise BundleError(f"{path}: not JSON: {error}") from error
    for field, earlier in EARLIER.items():
        value = content.get(field) if isinstance(content, dict) else None
        if value in earlier:
            raise BundleError(
                f"{path}: {field}: {value}: made by an earlier version of Dragoman: export the model again with "
                "`dragoman export`"
            )
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        raise _explain(path, error) from error


def _read_golden(path: Path, manifest: Manifest) -> tuple[GoldenSentence, ...]:
    try:
        golden = _GOLDEN.validate_json(read_file(path))
        check_golden(manifest, golden)
        manifest.check_golden(golden)
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        raise _explain(path, error) from error
    except ValueError as error:
        raise BundleError(f"{path}: {error}") from error
    return golden


def _explain(path: Path, error: ValidationError) -> BundleError:
    return BundleError(f"{path}: {first_problem(error)}")


def _check_file(path: Path, expected: str) -> None:
    try:
        actual = sha256_of(path)
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror}, although the manifest lists it") from error
    if actual != expected:
        raise BundleError(f"{path}: sha256 is {actual}, expected {expected} as in the manifest: the file was changed")
