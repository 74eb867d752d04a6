"""What stands beside a CTranslate2 model's model.bin: its configuration, vocabularies and SentencePiece models.

Called by `export.imports.from_ctranslate2`.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from export.imports.common import (
    ImportedModelError,
    check_pieces,
    find_piece,
    language_pieces,
    read_bytes,
    read_fields,
    read_json,
    tokenizer_refused,
)
from export.imports.ctranslate2_file import ModelFile, Variable
from model.tokenizer.piece_tokenizer import PieceTokenizer
from model.tokenizer.tokenizer import TokenizerError

CONFIG_FILE = "config.json"
# From this binary version on there is a configuration; before, model.bin held the same as variables.
FIRST_WITH_CONFIG = 6
# Names under which SentencePiece models stand beside a model, or beside its folder: of sources and of translations.
TOKENIZERS = (
    ("source.spm", "target.spm"),
    ("sentencepiece.model", "sentencepiece.model"),
    ("sentencepiece.bpe.model", "sentencepiece.bpe.model"),
    ("tokenizer.model", "tokenizer.model"),
    ("spm.model", "spm.model"),
)
PAD_PIECES = ("<blank>", "<pad>")


class Config(BaseModel):
    """The fields of config.json that decide what a model reads and writes."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    unk: str = Field("<unk>", alias="unk_token")
    bos: str = Field("<s>", alias="bos_token")
    eos: str = Field("</s>", alias="eos_token")
    start: str | None = Field("<s>", alias="decoder_start_token")
    add_source_bos: bool = False
    add_source_eos: bool = False
    layer_norm_epsilon: float | None = Field(None, gt=0)


@dataclass(frozen=True, slots=True)
class Vocabularies:
    """The pieces of both sides in the order of their ids, and where they were read."""

    source_path: Path
    source: tuple[str, ...]
    target_path: Path
    target: tuple[str, ...]


def read_config(folder: Path, file: ModelFile) -> Config:
    """Reads the configuration of a model.

    Raises:
        ImportedModelError: naming the field, its value and what was expected.
    """
    path = folder / CONFIG_FILE
    fields = read_fields(path) if file.version >= FIRST_WITH_CONFIG else _fields_of_variables(file.variables)
    try:
        return Config.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise ImportedModelError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def read_vocabularies(folder: Path) -> Vocabularies:
    """Reads the vocabularies of a model: one that both sides share, or one for each.

    Raises:
        ImportedModelError: if there is none.
    """
    if (folder / "source_1_vocabulary.json").exists() or (folder / "source_1_vocabulary.txt").exists():
        raise ImportedModelError(f"{folder}: source_1_vocabulary: several source features, expected one")
    shared = _find_vocabulary(folder, "shared")
    source = shared or _find_vocabulary(folder, "source")
    target = shared or _find_vocabulary(folder, "target")
    if source is None or target is None:
        raise ImportedModelError(
            f"{folder}: expected shared_vocabulary, or source_vocabulary and target_vocabulary, as .json or .txt"
        )
    return Vocabularies(source, _read_vocabulary(source), target, _read_vocabulary(target))


def read_tokenizer(folder: Path, config: Config, vocabularies: Vocabularies) -> PieceTokenizer:
    """Reads the SentencePiece models of a model.

    Raises:
        ImportedModelError: if there are none.
    """
    source, target = vocabularies.source, vocabularies.target
    special = {config.bos, config.eos, *PAD_PIECES, *language_pieces(source)}
    special |= {config.start or config.bos}
    find_piece(vocabularies.source_path, source, config.unk)
    source_model, target_model = _find_tokenizers(folder)
    try:
        return PieceTokenizer(
            read_bytes(source_model),
            read_bytes(target_model),
            source,
            target,
            unknown_piece=config.unk,
            special_pieces=sorted(special),
        )
    except TokenizerError as error:
        raise tokenizer_refused(folder, error) from error


def _find_tokenizers(folder: Path) -> tuple[Path, Path]:
    for place in (folder, folder.parent):
        if (place / "bpe.model").exists():
            raise ImportedModelError(f"{place / 'bpe.model'}: byte pairs of words, expected a SentencePiece model")
        for source, target in TOKENIZERS:
            if (place / source).is_file() and (place / target).is_file():
                return place / source, place / target
    names = ", ".join(dict.fromkeys(" and ".join(dict.fromkeys(pair)) for pair in TOKENIZERS))
    raise ImportedModelError(f"{folder}: expected a SentencePiece model in it or beside it, one of {names}")


def _find_vocabulary(folder: Path, name: str) -> Path | None:
    paths = (folder / f"{name}_vocabulary.{suffix}" for suffix in ("json", "txt"))
    return next((path for path in paths if path.exists()), None)


def _read_vocabulary(path: Path) -> tuple[str, ...]:
    if path.suffix == ".json":
        return check_pieces(path, read_json(path))
    try:
        text = read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise ImportedModelError(f"{path}: not UTF-8") from error
    # Not splitlines: a piece may be a line separator of Unicode.
    return check_pieces(path, [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")])


def _fields_of_variables(variables: dict[str, Variable]) -> dict[str, object]:
    """Returns the configuration of a model of an earlier binary version."""
    texts = ("unk_token", "bos_token", "eos_token")
    fields: dict[str, object] = {
        name: np.asarray(variables[name]).tobytes().decode(errors="replace") for name in texts if name in variables
    }

    def flag(name: str, *, usual: bool) -> bool:
        return bool(variables[name].any()) if name in variables else usual

    fields["add_source_bos"] = flag("with_source_bos", usual=False)
    fields["add_source_eos"] = flag("with_source_eos", usual=False)
    usual = Config()
    begin = {"bos_token": usual.bos, "eos_token": usual.eos, **fields}
    start = begin["bos_token" if flag("with_target_bos", usual=True) else "eos_token"]
    return {**fields, "decoder_start_token": None if flag("user_decoder_start_tokens", usual=False) else start}
