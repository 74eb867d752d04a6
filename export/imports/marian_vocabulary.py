"""Vocabularies, tokenizers and options of Marian's own models.

OPUS-MT has vocab.yml for both sides, or two vocabularies that decoder.yml lists, with source.spm and target.spm.
Firefox Translations has SentencePiece models with the ids of the network: vocab.*.spm, or srcvocab.*.spm and
trgvocab.*.spm.
"""

import json
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import NamedTuple

import yaml

from dragoman.export.imports import common
from dragoman.model.tokenizer.piece_tokenizer import PieceTokenizer
from dragoman.serve.bundle.files import read_file

DECODER_FILE = "decoder.yml"
# The limit of the options in a model; known ones have 10 kB.
MAX_CONFIG_BYTES = 1 << 20
EOS, UNKNOWN = "</s>", "<unk>"


class Vocabularies(NamedTuple):
    """The pieces of both sides by id, the ids of EOS, and the tokenizer."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    source_eos: int
    target_eos: int
    tokenizer: PieceTokenizer


def read_vocabularies(folder: Path) -> Vocabularies:
    """Returns the vocabularies of a folder; raises ImportedModelError if files are missing, or are no vocabularies."""
    models = _sentencepiece_paths(folder)
    if models is None:
        paths, models = _vocabulary_paths(folder), (folder / "source.spm", folder / "target.spm")
        source, target = (common.check_pieces(path, read_vocabulary(path)) for path in paths)
    else:
        paths = models
        source, target = (common.stored_pieces(model, read_file(model)) for model in models)
    special = sorted({EOS, *common.language_pieces(source)})
    source_model, target_model = (read_file(model) for model in models)
    tokenizer = PieceTokenizer(
        source_model, target_model, source, target, unknown_piece=UNKNOWN, special_pieces=special
    )
    source_eos, target_eos = common.find_piece(paths[0], source, EOS), common.find_piece(paths[1], target, EOS)
    return Vocabularies(source, target, source_eos, target_eos, tokenizer)


def _sentencepiece_paths(folder: Path) -> tuple[Path, Path] | None:
    """Returns the SentencePiece models that are vocabularies too, source and target; None if there are none."""
    if any(folder.glob("srcvocab*.spm")):
        return only(folder, "srcvocab*.spm"), only(folder, "trgvocab*.spm")
    if not any(folder.glob("vocab*.spm")):
        return None
    path = only(folder, "vocab*.spm")
    return path, path


def only(folder: Path, *patterns: str) -> Path:
    """Returns the only file of some patterns; raises ImportedModelError if there are several, or none."""
    found = sorted({path for pattern in patterns for path in folder.glob(pattern)})
    if len(found) != 1:
        raise common.ImportedModelError(f"{folder}: {len(found)} files {' or '.join(patterns)}, expected one")
    return found[0]


def _vocabulary_paths(folder: Path) -> tuple[Path, Path]:
    """Returns the vocabularies that decoder.yml lists, else the only one."""
    decoder = folder / DECODER_FILE
    names = read_options(decoder, read_file(decoder)).get("vocabs") if decoder.exists() else None
    if isinstance(names, list) and len(names) == 2:  # noqa: PLR2004
        return folder / PurePath(names[0]).name, folder / PurePath(names[1]).name
    path = only(folder, "*vocab*.yml")
    return path, path


def read_vocabulary(path: Path) -> dict[str, int]:
    """Returns the ids of the lines `piece: id`, as Marian writes them; raises ImportedModelError for other lines.

    A piece is plain or in quotes; `? piece` and `: id` on two lines are a piece that is long.
    """
    found: dict[str, int] = {}
    long_piece = None
    for number, line in enumerate(read_file(path).decode().split("\n"), start=1):
        line = line.rstrip("\r")  # noqa: PLW2901 - a line of Windows
        if not line:
            continue
        if line.startswith("? "):
            long_piece = line[2:]
            continue
        piece, _, id_text = line.rpartition(":")
        try:
            found[_unquoted(piece if long_piece is None else long_piece)] = int(id_text)
        except (ValueError, yaml.YAMLError) as error:
            raise common.ImportedModelError(f"{path}: line {number}: expected a piece, a colon and its id") from error
        long_piece = None
    return found


def _unquoted(piece: str) -> str:
    if piece.startswith("'") and piece.endswith("'"):
        return piece[1:-1].replace("''", "'")
    if not piece.startswith('"'):
        return piece
    # JSON lacks some escapes of YAML, as \\x41; the parser of YAML is slow.
    try:
        return str(json.loads(piece))
    except ValueError:
        return str(yaml.safe_load(piece))


def read_options(path: Path, content: bytes) -> Mapping[str, object]:
    """Returns the options of a mapping; a list or mapping among them is replaced by the name of its type.

    Aliases let a few bytes stand for billions of values, which only a text of them would show.
    """
    if len(content) > MAX_CONFIG_BYTES:
        raise common.ImportedModelError(f"{path}: {len(content)} bytes of options, expected at most {MAX_CONFIG_BYTES}")
    try:
        fields = yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise common.ImportedModelError(f"{path}: not YAML: {error}") from error
    if not isinstance(fields, dict):
        raise common.ImportedModelError(f"{path}: expected a mapping of options")
    return {str(name): _plain(value) for name, value in fields.items() if isinstance(name, str)}


def _plain(value: object) -> object:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    return value if isinstance(value, str | int | float | bool | None) else type(value).__name__
