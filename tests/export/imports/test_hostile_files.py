"""Models of other toolkits that an attacker wrote: refused in one line, within limits of disk and memory."""

import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
import torch

from benchmarks.systems.ctranslate2_system import spec_of
from dragoman.export.imports.common import ImportedModelError, ImportOptions
from dragoman.export.imports.ctranslate2 import import_ctranslate2
from dragoman.export.imports.ctranslate2_files import open_package
from dragoman.export.imports.hugging_face import import_checkpoint
from dragoman.model.tokenizer.tokenizer import Tokenizer
from tests.support.ctranslate2_models import model_file, write_model
from tests.support.hostile import attack
from tests.support.marian_npz import write_marian_npz
from tests.support.marian_student import Student, write_student
from tests.support.multilingual import write_mbart50, write_nllb
from tests.support.shards import split_checkpoint
from tests.support.toy import random_model

OPTIONS = ImportOptions("en", "de")
DEEP = "[" * 100_000
LANGUAGES = json.dumps({"from_code": "en", "to_code": "de"})


@pytest.fixture
def folder(marian: Path, tmp_path: Path) -> Path:
    """A checkpoint that a test may damage."""
    return copytree(marian, tmp_path / "marian")


def refusal(read: Callable[[Path, ImportOptions], object], path: Path) -> str:
    with pytest.raises(ImportedModelError) as refused:
        read(path, OPTIONS)
    assert str(refused.value).isprintable()
    return str(refused.value)


def write_zip(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_only_the_members_that_are_read_are_unpacked(tmp_path: Path) -> None:
    names = ("en_de/metadata.json", "en_de/model/model.bin", "en_de/sentencepiece.model")
    others = ("en_de/stanza/large.pt", "../outside", "en_de/../../outside", "/outside", "other/model/model.bin")
    members = dict.fromkeys(names, LANGUAGES.encode()) | dict.fromkeys(others, bytes(1 << 26))
    with open_package(write_zip(tmp_path / "p", members), ImportOptions()) as package:
        unpacked = package.model.parent
        found = {str(file.relative_to(unpacked)) for file in unpacked.rglob("*") if file.is_file()}
        assert found == {name.removeprefix("en_de/") for name in names}
    assert not unpacked.exists()
    assert [file.name for file in tmp_path.iterdir()] == ["p"]


@pytest.mark.parametrize(
    ("size", "method", "expected"),
    [
        (1 << 26, zipfile.ZIP_DEFLATED, "unpacks to"),
        (1, zipfile.ZIP_LZMA, "deflated"),
        (1, zipfile.ZIP_BZIP2, "deflated"),
    ],
)
def test_a_package_that_grows_too_much_is_refused(tmp_path: Path, size: int, method: int, expected: str) -> None:
    members = {"metadata.json": LANGUAGES.encode(), "model/model.bin": bytes(size)}
    message = refusal(import_ctranslate2, write_zip(tmp_path / "p", members, method))
    assert message.startswith(f"{tmp_path / 'p'}: ")
    assert expected in message


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_package_with_a_member_twice_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "p", "w") as archive:
        for content in (b"a", b"b"):
            archive.writestr("metadata.json", content)
    assert "once" in refusal(import_ctranslate2, tmp_path / "p")


@pytest.mark.parametrize("name", ["config.json", "vocab.json", "source.spm", "model.safetensors"])
def test_a_pipe_in_place_of_a_file_is_named_at_once(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert refusal(import_checkpoint, folder).startswith(f"{folder / name}: ")


@pytest.mark.parametrize("write", [write_nllb, write_mbart50])
@pytest.mark.parametrize("content", [b"", b"no model"])
def test_a_file_without_sentencepiece_is_named(write: Callable[[Path], object], content: bytes, tmp_path: Path) -> None:
    write(tmp_path / "m")
    path = tmp_path / "m" / "sentencepiece.bpe.model"
    path.write_bytes(content)
    assert refusal(import_checkpoint, tmp_path / "m").startswith(f"{path}: not a SentencePiece model")


@pytest.mark.parametrize("name", ["config.json", "vocab.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [DEEP, "9" * 10_000, " " * (65 << 20)], ids=["deep", "digits", "large"])
def test_json_that_is_too_deep_or_too_large_is_named(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(content)
    assert refusal(import_checkpoint, folder).startswith(f"{folder / name}: ")


@pytest.mark.parametrize("field", ["vocab_size", "max_position_embeddings", "decoder_vocab_size"])
def test_a_size_without_weights_is_refused(folder: Path, field: str) -> None:
    """Otherwise small files would make a model of many gigabytes."""
    for value in (10**6, 10**12):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, field: value}))
        refusal(import_checkpoint, folder)


def test_a_compressed_checkpoint_is_refused(folder: Path) -> None:
    """PyTorch would unpack it into memory."""
    saved = io.BytesIO()
    torch.save({"a": torch.zeros(1 << 22)}, saved)
    (folder / "model.safetensors").unlink()
    with zipfile.ZipFile(saved) as archive:
        write_zip(folder / "pytorch_model.bin", {name: archive.read(name) for name in archive.namelist()})
    assert "unpacks to" in refusal(import_checkpoint, folder)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_an_option_that_is_no_number_is_named(tmp_path: Path, number: float) -> None:
    (tmp_path / "model.bin").write_bytes(model_file({"encoder/num_heads": np.array(number, np.float32)}))
    (tmp_path / "config.json").write_text("{}")
    assert "encoder/num_heads" in refusal(import_ctranslate2, tmp_path)


def test_mutations_are_read_or_refused(marian: Path, tokenizer: Tokenizer, tmp_path: Path, *, thorough: bool) -> None:
    spec = spec_of(random_model(1, tokenizer.vocabulary_size), tokenizer.source_pieces)
    write_model(tmp_path / "ctranslate2", spec, tokenizer=tokenizer)
    copytree(marian, tmp_path / "marian")
    split_checkpoint(copytree(marian, tmp_path / "shards"))
    write_marian_npz(tmp_path / "npz", tokenizer)
    write_student(tmp_path / "student", Student().eval(), "bin")
    attack("import", 3000 if thorough else 25, *sorted(tmp_path.iterdir()))
