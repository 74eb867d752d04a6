"""What every import has in common: reading files with clear errors, languages, and a Transformer from foreign tensors.

`export.imports.marian` and `export.imports.ctranslate2` know one format each and call this.

The tensors of a foreign model, taken by name: what is missing or left over is told.

Both importers use it; knows no format.

Texts for the golden sentences of an imported model, which comes without sentences: words of its own vocabulary.

They mean nothing; what counts is that the model translates them here and at the server alike.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from pydantic import ValidationError
from torch import Tensor

from model.config import TransformerConfig
from model.network.transformer import Transformer
from model.tokenizer.tokenizer import WORD_START, TokenizerError
from serve.bundle.manifest import BundleDirection, first_problem

# The longest texts that an import reads and writes if nothing else is asked for: what our own models have.
USUAL_MAX_TOKENS = 256

_LANGUAGE = re.compile(r"[a-z]{2,3}")
# Marian's multilingual models find such a token before the source: `>>fra<<`.
_LANGUAGE_PIECE = re.compile(r">>(.+)<<")


class ImportedModelError(Exception):
    """The files are no model that can be imported; the message names the file, the field and what was expected."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What the files of a model may not say, or may say otherwise.

    Attributes:
        source_language: language of the sources; None: as the files say.
        target_language: language of the translations; None: as the files say.
        max_source_tokens: longest source, its prefix and suffix included; None: `USUAL_MAX_TOKENS` or the model's own.
        max_target_tokens: longest translation, the end token excluded; None: the same.
    """

    source_language: str | None = None
    target_language: str | None = None
    max_source_tokens: int | None = None
    max_target_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """The special tokens that a model itself needs.

    Attributes:
        pad: fills up sources.
        bos: every translation starts from it.
        eos: ends a translation.
    """

    pad: int
    bos: int
    eos: int


@dataclass(frozen=True, slots=True)
class Limits:
    """The longest sequences, in tokens, and how many positions tables need for them."""

    max_source_tokens: int
    max_target_tokens: int

    @property
    def positions(self) -> int:
        """Rows of a table of positions: the begin token has one of its own."""
        return max(self.max_source_tokens, self.max_target_tokens + 1)


def read_json(path: Path) -> object:
    """Reads a JSON file.

    Raises:
        ImportedModelError: if it is missing or not JSON.
    """
    try:
        return json.loads(read_bytes(path))
    except ValueError as error:
        raise ImportedModelError(f"{path}: not JSON: {error}") from error


def read_fields(path: Path) -> dict[str, object]:
    """Reads a JSON file with an object.

    Raises:
        ImportedModelError: if it is missing or not one.
    """
    content = read_json(path)
    if not isinstance(content, dict):
        raise ImportedModelError(f"{path}: expected a JSON object")
    return content


def read_bytes(path: Path) -> bytes:
    """Reads a file.

    Raises:
        ImportedModelError: if that is impossible.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise ImportedModelError(f"{path}: {error.strerror}") from error


def find_limits(options: ImportOptions, positions: int | None) -> Limits:
    """Returns the longest sequences of a model.

    Args:
        options: what was asked for.
        positions: how many the model has vectors for; None: as many as one likes.

    Raises:
        ImportedModelError: if more was asked for.
    """
    usual = USUAL_MAX_TOKENS if positions is None else min(USUAL_MAX_TOKENS, positions - 1)
    limits = Limits(options.max_source_tokens or usual, options.max_target_tokens or usual)
    if positions is not None:
        for field, asked, most in (
            ("max-source-tokens", limits.max_source_tokens, positions),
            ("max-target-tokens", limits.max_target_tokens, positions - 1),
        ):
            if asked > most:
                raise ImportedModelError(f"{field}: {asked}: the model has {positions} positions, expected {most}")
    return limits


def find_directions(
    pieces: Sequence[str],
    options: ImportOptions,
    *,
    source: str | None,
    target: str | None,
    prefix: tuple[int, ...] = (),
) -> tuple[BundleDirection, ...]:
    """Returns what a model translates: one direction, or one for each language token of its source vocabulary.

    Args:
        pieces: of the source vocabulary.
        options: languages there win; the target of a model with language tokens is the only one to offer.
        source: language of the sources, if the files tell.
        target: language of the translations, or of a family of them, if the files tell.
        prefix: tokens before every source.

    Raises:
        ImportedModelError: if a language is not known, not written like one, or none of the model's.
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
        raise ImportedModelError(f"target-language: {target}: expected a model with ISO 639 codes, not {named}")
    return tuple(
        BundleDirection(source=str(source), target=name, source_prefix=(*prefix, token))
        for name, token in sorted(offered.items())
    )


def language_tokens(pieces: Sequence[str]) -> dict[str, int]:
    """Returns the ids of the tokens that ask for a target language, by the name of the language."""
    found = ((_LANGUAGE_PIECE.fullmatch(piece), number) for number, piece in enumerate(pieces))
    return {match[1]: number for match, number in found if match}


def language_pieces(pieces: Sequence[str]) -> tuple[str, ...]:
    """Returns the pieces that ask for a target language."""
    return tuple(pieces[number] for number in language_tokens(pieces).values())


def build_transformer(
    fields: Mapping[str, object], vocabulary_size: int, special: SpecialIds, parameters: Mapping[str, Tensor]
) -> Transformer:
    """Returns a Transformer with imported parameters, in evaluation mode.

    Args:
        fields: of `TransformerConfig`.
        vocabulary_size: the number of tokens.
        special: special tokens.
        parameters: by the names of `Transformer`, float32.

    Raises:
        ImportedModelError: if the shape is not one that we have, or a parameter is missing or has another shape.
    """
    try:
        config = TransformerConfig.model_validate({"dropout": 0.0, **fields})
    except ValidationError as error:
        raise ImportedModelError(first_problem(error)) from error
    with torch.device("meta"):
        model = Transformer(config, vocabulary_size, special.pad, bos_id=special.bos, eos_id=special.eos)
    expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    for name, shape in expected.items():
        actual = tuple(parameters[name].shape)
        if actual != shape:
            raise ImportedModelError(f"{name}: shape is {actual}, expected {shape}")
    model.load_state_dict(dict(parameters), assign=True)
    return model.eval().requires_grad_(requires_grad=False)


def check_pieces(path: Path, pieces: object) -> tuple[str, ...]:
    """Returns the pieces of a vocabulary, checked: a list, or an object with the id of each piece.

    Raises:
        ImportedModelError: if it is neither, or ids are missing.
    """
    if isinstance(pieces, dict):
        if sorted(pieces.values(), key=str) != sorted(range(len(pieces)), key=str):
            raise ImportedModelError(f"{path}: expected the ids 0 to {len(pieces) - 1}, each for one piece")
        pieces = sorted(pieces, key=pieces.__getitem__)
    if not isinstance(pieces, list) or not pieces or not all(isinstance(piece, str) for piece in pieces):
        raise ImportedModelError(f"{path}: expected a list of pieces, or an object with the id of each piece")
    return tuple(pieces)


def find_piece(path: Path, pieces: Sequence[str], piece: str) -> int:
    """Returns the id of a special piece.

    Raises:
        ImportedModelError: if the vocabulary lacks it.
    """
    try:
        return pieces.index(piece)
    except ValueError:
        raise ImportedModelError(f"{path}: has no piece {piece}, expected this special token") from None


def tokenizer_refused(folder: Path, error: TokenizerError) -> ImportedModelError:
    """Returns the error of a model whose tokenizer cannot be used."""
    return ImportedModelError(f"{folder}: {error}")


def _check_language(option: str, language: str | None) -> None:
    if language is None or not _LANGUAGE.fullmatch(language):
        raise ImportedModelError(f"{option}: {language}: the model's files do not tell, expected an ISO 639 code")


MATRIX_DIMENSIONS = 2


class Tensors:
    """Tensors to be taken; leaving the context, none may be left: it would belong to something we do not compute."""

    def __init__(self, path: Path, tensors: Mapping[str, object]) -> None:
        self._path = path
        self._left = dict(tensors)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None and self._left:
            names = sorted(self._left)
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise ImportedModelError(f"{self._path}: {names[0]}{more}: no model of ours has it, expected nothing else")

    def take(self, name: str, shape: tuple[int, ...] | None = None) -> Tensor:
        """Returns a tensor, float32; of any shape, or of the one expected.

        Raises:
            ImportedModelError: if there is none of this name and shape.
        """
        tensor = self.take_optional(name)
        if tensor is None:
            raise ImportedModelError(f"{self._path}: {name}: is missing")
        if shape is not None and tensor.shape != shape:
            raise ImportedModelError(f"{self._path}: {name}: shape is {tuple(tensor.shape)}, expected {shape}")
        return tensor

    def has(self, name: str) -> bool:
        """Returns whether a tensor is there and not taken yet."""
        return name in self._left

    def take_matrix(self, name: str) -> Tensor:
        """Returns a tensor of two dimensions, float32.

        Raises:
            ImportedModelError: if there is none of this name.
        """
        tensor = self.take(name)
        if tensor.dim() != MATRIX_DIMENSIONS:
            raise ImportedModelError(f"{self._path}: {name}: shape is {tuple(tensor.shape)}, expected a matrix")
        return tensor

    def take_optional(self, name: str) -> Tensor | None:
        """Returns a tensor, float32, or None."""
        tensor = self._left.pop(name, None)
        if tensor is None:
            return None
        if not isinstance(tensor, Tensor):
            raise ImportedModelError(f"{self._path}: {name}: expected a tensor")
        return tensor.float()


def grown(weight: Tensor, rows: int) -> Tensor:
    """Returns a matrix with rows of zeros added, up to a number of rows."""
    # What is no matrix stays as it is, for whoever checks shapes.
    if weight.dim() != MATRIX_DIMENSIONS or len(weight) >= rows:
        return weight
    return torch.cat((weight, weight.new_zeros(rows - len(weight), weight.shape[1])))


TEXTS = 24
WORDS_OF_TEXTS = (1, 2, 3, 4, 5, 6, 8, 10)
# Vocabularies begin with what is common.
COMMON_PIECES = 2000


def golden_texts(pieces: Sequence[str]) -> list[str]:
    """Returns texts of several lengths, always the same ones; none if the vocabulary has no words.

    Args:
        pieces: of the source vocabulary, in the order of their ids.
    """
    letters = [piece for piece in pieces if piece.removeprefix(WORD_START).isalpha()]
    # A script without spaces has no pieces that begin words.
    words = [piece for piece in letters if piece.startswith(WORD_START)] or letters
    common = words[:COMMON_PIECES]
    if not common:
        return []
    endless = cycle(common[:: max(1, len(common) // sum(islice(cycle(WORDS_OF_TEXTS), TEXTS)))])
    lengths = islice(cycle(WORDS_OF_TEXTS), TEXTS)
    return ["".join(islice(endless, length)).replace(WORD_START, " ").strip() for length in lengths]
