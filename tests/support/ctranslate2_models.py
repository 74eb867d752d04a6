"""CTranslate2 models and what they answer, the bytes of model files, and Argos packages."""

import json
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
from ctranslate2.specs import TransformerSpec
from numpy.typing import NDArray

from benchmarks.systems import ctranslate2_system
from dragoman.export.imports.common import ImportedModelError, ImportOptions
from dragoman.export.imports.ctranslate2 import import_ctranslate2
from dragoman.export.imports.ctranslate2_files import TYPES, Variable
from dragoman.model.network.transformer import Transformer
from dragoman.model.tokenizer.frozen_tokenizer import RunTokenizer
from tests.support.toy import random_model

LIMIT = 20
WANTED = ImportOptions("en", "de", max_source_tokens=70, max_target_tokens=LIMIT)
SIZES = {"d_model": 64, "heads": 4, "encoder_layers": 2, "decoder_layers": 2, "max_source_tokens": 80}


def make_model(tokenizer: RunTokenizer, **options: Any) -> Transformer:
    return random_model(7, tokenizer.vocabulary_size, **{**SIZES, "max_target_tokens": LIMIT, **options})


def fill_with_zeros(spec: Any, vocabulary_size: int, width: int = 8) -> None:
    """Adds every parameter that a specification lacks, with a shape that splits into two and three parts."""

    def fill(scope: Any, name: str, value: object) -> None:
        if value is None:
            rows = vocabulary_size if "embeddings" in name or "projection" in name else 6 * width
            setattr(scope, name.rpartition("/")[2], np.zeros((rows, width), np.float32))

    spec._visit(fill)


def write_model(
    folder: Path, spec: TransformerSpec, kind: str = "float32", tokenizer: RunTokenizer | None = None
) -> Path:
    ctranslate2_system.write_model(folder, spec, kind)
    if tokenizer is not None:
        (folder / "sentencepiece.model").write_bytes(tokenizer.model)
    return folder


def translate(
    folder: Path,
    sources: Sequence[Sequence[str]],
    beam_size: int,
    limit: int,
    length_penalty: float = 0.0,
    *,
    start: Sequence[str] = (),
    shortest: int = 0,
) -> list[list[str]]:
    """Returns the pieces of the translations of CTranslate2 in float32, without the start tokens."""
    results = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1).translate_batch(
        [list(pieces) for pieces in sources],
        target_prefix=[list(start) for _ in sources] if start else None,
        beam_size=beam_size,
        max_decoding_length=limit + len(start),
        length_penalty=length_penalty,
        min_decoding_length=shortest,
    )
    return [result.hypotheses[0][len(start) :] for result in results]


def write_package(
    path: Path, model: Path, tokenizer: bytes, tokenizer_file: str = "sentencepiece.model", /, **metadata: object
) -> Path:
    content = {"package_version": "1.0", "argos_version": "1.5", "from_code": "en", "to_code": "de", **metadata}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("en_de/metadata.json", json.dumps(content))
        archive.writestr("en_de/README.md", "A model of ours.")
        archive.writestr(f"en_de/{tokenizer_file}", tokenizer)
        for file in sorted(model.iterdir()):
            if file.name != "sentencepiece.model":
                archive.write(file, f"en_de/model/{file.name}")
    return path


def text(content: str) -> bytes:
    """Returns a string in the format of model.bin."""
    return struct.pack("<H", len(content) + 1) + content.encode() + b"\0"


def variable(name: str, value: NDArray[np.generic], version: int) -> bytes:
    shape = b"".join(struct.pack("<I", size) for size in value.shape)
    kind = TYPES.index(value.dtype.name) if version >= 4 else value.itemsize
    length = value.nbytes if version >= 4 else value.size
    return text(name) + bytes([value.ndim]) + shape + struct.pack("<BI", kind, length) + value.tobytes()


def model_file(
    variables: Mapping[str, Variable],
    aliases: Sequence[tuple[str, str]] = (),
    version: int = 6,
    revision: int = 7,
    specification: str = "TransformerSpec",
) -> bytes:
    content = struct.pack("<I", version)
    if version >= 2:
        content += text(specification) + struct.pack("<I", revision)
    content += struct.pack("<I", len(variables))
    content += b"".join(variable(name, np.asarray(value), version) for name, value in variables.items())
    if version >= 3:
        content += struct.pack("<I", len(aliases)) + b"".join(text(alias) + text(name) for alias, name in aliases)
    return content


def refusal(path: Path, options: ImportOptions = WANTED) -> str:
    with pytest.raises(ImportedModelError) as refused:
        import_ctranslate2(path, options)
    return str(refused.value).removeprefix(f"{path}").removeprefix("/")
