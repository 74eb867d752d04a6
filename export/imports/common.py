"""Shared code of the importers: file access, languages, tensors by name, and construction of the Transformer.

`Tensors` rejects a model that lacks a tensor or has an unused one.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import ValidationError

from dragoman.export.imports.stored import StoredArray, StoredParameters
from dragoman.model.config import TransformerConfig
from dragoman.model.errors import UserError, first_problem
from dragoman.model.imported_config import ImportedConfig
from dragoman.model.tokenizer.tokenizer import SpecialIds, TokenizerError, open_processor
from dragoman.model.weights import TransformerWeights, parameter_shapes
from dragoman.serve.bundle import files
from dragoman.serve.bundle.manifest import MAX_VOCABULARY, BundleDirection

Array = NDArray[np.float32]
# A parameter of a model is in its file, or computed.
Parameter = StoredArray | Array

# The fields and options that readers expect, with their values.
EXPECTED: dict[str, dict[str, object]] = yaml.safe_load(Path(__file__).with_name("expected.yaml").read_text("utf-8"))
# The default limits of imported models, those of our own models.
USUAL_MAX_TOKENS = 256

_LANGUAGE = re.compile(r"[a-z]{2,3}")
_WITH_SCRIPT = re.compile(rf"{_LANGUAGE.pattern}(-[A-Z][a-z]{{3}})?")
# The target language token of Marian's multilingual models, before the source: `>>fra<<`.
_LANGUAGE_PIECE = re.compile(r">>(.+)<<")


class ImportedModelError(UserError):
    """The files are no model that can be imported; the message names file, field and expected value in one line."""

    def __init__(self, message: str) -> None:
        super().__init__(files.one_line(message))


class UnnamedLanguageError(ImportedModelError):
    """Neither the files nor the options name a language of the model."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Values that override the files of a model, or that the files do not contain; None: as in the files.

    The longest source includes prefix and suffix, the longest translation excludes EOS. Without a limit of the model,
    both are `USUAL_MAX_TOKENS`.
    """

    source_language: str | None = None
    target_language: str | None = None
    max_source_tokens: int | None = None
    max_target_tokens: int | None = None


class Limits(NamedTuple):
    """The longest sequences, in tokens."""

    max_source_tokens: int
    max_target_tokens: int

    @property
    def positions(self) -> int:
        """Rows of a position table; BOS takes one target position."""
        return max(self.max_source_tokens, self.max_target_tokens + 1)


@contextmanager
def importing(path: Path) -> Iterator[None]:
    """Converts every error of the block to ImportedModelError: libraries raise any exception for damaged files.

    An error of the system names its file, else `path`.
    """
    try:
        yield
    except ImportedModelError:
        raise
    except TokenizerError as error:
        raise ImportedModelError(f"{path}: {error}") from error
    except OSError as error:
        problem = error.strerror or f"cannot be imported: {type(error).__name__}: {error}"
        raise ImportedModelError(f"{error.filename or path}: {problem}") from error
    except Exception as error:
        raise ImportedModelError(f"{path}: cannot be imported: {type(error).__name__}: {error}") from error


def read_json(path: Path) -> object:
    """Reads a JSON file; raises OSError if it is missing or too large, ImportedModelError if it is not JSON."""
    try:
        return files.read_json(path)
    except ValueError as error:
        raise ImportedModelError(f"{path}: not JSON: {error}") from error


def read_fields(path: Path) -> dict[str, object]:
    """Reads a JSON object from a file; raises OSError as `read_json`, ImportedModelError if it is something else."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise ImportedModelError(f"{path}: expected a JSON object")
    return content


def find_limits(options: ImportOptions, positions: int | None) -> Limits:
    """Returns the limits; `positions` None: unlimited. Raises ImportedModelError if a requested limit is too large."""
    usual = USUAL_MAX_TOKENS if positions is None else min(USUAL_MAX_TOKENS, positions - 1)
    limits = Limits(options.max_source_tokens or usual, options.max_target_tokens or usual)
    if positions is not None:
        for field, tokens, limit in (
            ("max-source-tokens", limits.max_source_tokens, positions),
            ("max-target-tokens", limits.max_target_tokens, positions - 1),
        ):
            if tokens > limit:
                raise ImportedModelError(
                    f"{field}: {tokens}: expected at most {limit}, as the model has {positions} positions"
                )
    return limits


def find_directions(
    pieces: Sequence[str],
    options: ImportOptions,
    source: str | None = None,
    target: str | None = None,
    prefix: tuple[int, ...] = (),
) -> tuple[BundleDirection, ...]:
    """Returns the directions of a model: one, or one per language token of its source vocabulary `pieces`.

    Languages of `options` override `source` and `target` of the files. With language tokens, a target of `options` is
    the only direction, and a target of the files may be a language family. `prefix` tokens precede every source.

    Raises ImportedModelError if a language is unknown, is no ISO 639 code, or is not one of the model's.
    """
    source, target = options.source_language or source, options.target_language or target
    tokens = language_tokens(pieces)
    _check_language("source-language", source)
    if not tokens:
        _check_language("target-language", target)
        return (BundleDirection(source=str(source), target=str(target), source_prefix=prefix),)
    offered = {name: token for name, token in tokens.items() if _LANGUAGE.fullmatch(name)}
    if target in offered:
        offered = {target: offered[target]}
    elif offered and options.target_language is not None:
        raise ImportedModelError(f"target-language: {target}: expected one of {', '.join(sorted(offered))}")
    if not offered:
        named = ", ".join(sorted(tokens))
        raise ImportedModelError(f"target-language: {target}: expected language tokens with ISO 639 codes, got {named}")
    return tuple(
        BundleDirection(source=str(source), target=name, source_prefix=(*prefix, token))
        for name, token in sorted(offered.items())
    )


def language_tokens(pieces: Sequence[str]) -> dict[str, int]:
    """Returns the ids of target language tokens by language."""
    found = ((_LANGUAGE_PIECE.fullmatch(piece), number) for number, piece in enumerate(pieces))
    return {match[1]: number for match, number in found if match}


def language_pieces(pieces: Sequence[str]) -> tuple[str, ...]:
    """Returns the target language tokens."""
    return tuple(pieces[number] for number in language_tokens(pieces).values())


def sinusoids(length: int, d_model: int, first: int, kind: type[np.floating] = np.float64) -> Array:
    """Returns position encodings of tensor2tensor, float32 [length, d_model]: all sines, then all cosines.

    The angles are (position + first) / 10000^(i / (d_model / 2 - 1)), computed in numbers of a kind.
    """
    half = d_model // 2
    scales = np.exp(np.arange(half, dtype=kind) * kind(-math.log(10000.0) / max(half - 1, 1)))
    angles = np.arange(first, length + first, dtype=kind)[:, None] * scales
    return np.concatenate((np.sin(angles), np.cos(angles)), axis=1).astype(np.float32)


def build_transformer(
    fields: Mapping[str, object],
    limits: Limits,
    vocabulary_size: int,
    special: SpecialIds,
    parameters: Mapping[str, Parameter],
) -> TransformerWeights:
    """Returns a Transformer, which reads parameters on use; raises ImportedModelError if a field or shape is wrong."""
    config = shape_of(fields, limits)
    for name, shape in parameter_shapes(config, vocabulary_size).items():
        if parameters[name].shape != shape:
            raise ImportedModelError(f"{name}: shape is {parameters[name].shape}, expected {shape}")
    return TransformerWeights(config, vocabulary_size, *special, StoredParameters(parameters))


def shape_of(fields: Mapping[str, object], limits: Limits) -> TransformerConfig:
    """Returns the shape of a Transformer; raises ImportedModelError if a field is wrong."""
    kind = ImportedConfig if "width_of_head" in fields else TransformerConfig
    try:
        return kind.model_validate({"dropout": 0.0, **fields, **limits._asdict()})
    except ValidationError as error:
        raise ImportedModelError(first_problem(error)) from error


def check_pieces(path: Path, pieces: object) -> tuple[str, ...]:
    """Returns the pieces of a list, or object of piece and id, by id; raises ImportedModelError for anything else."""
    if isinstance(pieces, dict):
        if sorted(pieces.values(), key=str) != sorted(range(len(pieces)), key=str):
            raise ImportedModelError(f"{path}: expected the ids 0 to {len(pieces) - 1}, one per piece")
        pieces = sorted(pieces, key=pieces.__getitem__)
    if not isinstance(pieces, list) or not pieces or not all(isinstance(piece, str) for piece in pieces):
        raise ImportedModelError(f"{path}: expected a list of pieces, or an object of piece and id")
    if len(pieces) > MAX_VOCABULARY:
        raise ImportedModelError(f"{path}: {len(pieces)} pieces, expected at most {MAX_VOCABULARY}")
    return tuple(pieces)


def stored_pieces(path: Path, model_file: bytes) -> tuple[str, ...]:
    """Returns the pieces of a SentencePiece model by id; raises ImportedModelError if it is none."""
    try:
        model = open_processor(model_file)
    except TokenizerError as error:
        raise ImportedModelError(f"{path}: {error}") from error
    return check_pieces(path, [str(model.id_to_piece(number)) for number in range(model.vocab_size())])


def find_piece(path: Path, pieces: Sequence[str], piece: str) -> int:
    """Returns the id of a special piece; raises ImportedModelError if the vocabulary lacks it."""
    try:
        return pieces.index(piece)
    except ValueError:
        raise ImportedModelError(f"{path}: expected the special piece {piece}") from None


def _check_language(option: str, language: str | None) -> None:
    problem = f"{option}: {language}: expected an ISO 639 code, as the model's files have none"
    if language is None:
        raise UnnamedLanguageError(problem)
    if not _WITH_SCRIPT.fullmatch(language):
        raise ImportedModelError(problem)


MATRIX_DIMENSIONS = 2
# Kinds of NumPy types: booleans, integers, floats.
REAL_NUMBERS = "biuf"


class Tensors:
    """The tensors of a model file. Each is taken once; on exit, a remaining tensor is an error.

    A remaining tensor belongs to a computation that Dragoman's models do not perform. Tensors stay in their file.
    """

    def __init__(self, path: Path, tensors: Mapping[str, object]) -> None:
        """Raises ImportedModelError if a name is no text."""
        if not all(isinstance(name, str) for name in tensors):
            raise ImportedModelError(f"{path}: expected tensors by name")
        self._path = path
        self._left = {
            name: StoredArray.of(tensor) if isinstance(tensor, np.ndarray) else tensor
            for name, tensor in tensors.items()
        }
        # The names of one tensor have the same object.
        self._floats: dict[int, StoredArray] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None and self._left:
            names = sorted(self._left)
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise ImportedModelError(f"{self._path}: {names[0]}{more}: unsupported tensor")

    def take(self, name: str, shape: tuple[int, ...] | None = None) -> StoredArray:
        """Takes a tensor as float32; raises ImportedModelError if it is missing or does not have a given shape."""
        tensor = self.take_optional(name)
        if tensor is None:
            raise ImportedModelError(f"{self._path}: {name}: missing tensor")
        if shape is not None and tensor.shape != shape:
            raise ImportedModelError(f"{self._path}: {name}: shape is {tensor.shape}, expected {shape}")
        return tensor

    def has(self, name: str) -> bool:
        """Returns True if the tensor exists and is not yet taken."""
        return name in self._left

    def columns(self, name: str) -> int:
        """Returns the last size of a tensor that is not yet taken; raises ImportedModelError if it is missing."""
        tensor = self._left.get(name)
        if not isinstance(tensor, StoredArray) or not tensor.ndim:
            raise ImportedModelError(f"{self._path}: {name}: missing tensor")
        return tensor.shape[-1]

    def take_matrix(self, name: str) -> StoredArray:
        """Takes a matrix as float32; raises ImportedModelError if it is missing or has another rank."""
        tensor = self.take(name)
        if tensor.ndim != MATRIX_DIMENSIONS:
            raise ImportedModelError(f"{self._path}: {name}: shape is {tensor.shape}, expected a matrix")
        return tensor

    def take_optional(self, name: str) -> StoredArray | None:
        """Takes a tensor as float32, or returns None."""
        tensor = self._left.pop(name, None)
        if tensor is None:
            return None
        if not isinstance(tensor, StoredArray) or tensor.dtype.kind not in REAL_NUMBERS:
            raise ImportedModelError(f"{self._path}: {name}: expected a dense tensor of real numbers")
        return self._floats.setdefault(id(tensor), tensor.floats())


def embeddings(
    source: StoredArray, target: StoredArray, output: StoredArray, rows: int = 0
) -> tuple[dict[str, Parameter], bool]:
    """Returns embeddings and output matrix with at least `rows` rows, and whether one matrix is all of them."""
    is_tied = are_equal(source, target) and are_equal(source, output)
    found = {"embedding.weight": source, "target_embedding.weight": target, "output.weight": output}
    return {name: grown(found[name], rows) for name in (list(found)[:1] if is_tied else found)}, is_tied


def grown(weight: StoredArray, rows: int) -> StoredArray:
    """Appends rows of zeros to a matrix, up to `rows` rows."""
    # Other tensors stay unchanged; `build_transformer` rejects their shape.
    if weight.ndim != MATRIX_DIMENSIONS or len(weight) >= rows:
        return weight
    return weight.then((rows, weight.shape[1]), lambda values: np.pad(values, ((0, rows - len(values)), (0, 0))))


def are_equal(first: StoredArray, second: StoredArray) -> bool:
    """Returns whether two tensors have the same values."""
    return first is second or (first.shape == second.shape and np.array_equal(first.read(), second.read()))
