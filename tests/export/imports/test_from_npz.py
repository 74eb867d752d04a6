"""Models in Marian's own format translate like CTranslate2, which converts them too."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from ctranslate2.converters import MarianConverter
from ctranslate2.converters import marian as converter
from numpy.typing import NDArray

from dragoman.export.imports.common import ImportedModelError, ImportOptions
from dragoman.export.imports.marian_files import import_marian_files
from dragoman.export.imports.marian_vocabulary import read_vocabulary
from dragoman.hub.install import install
from dragoman.hub.store import Store
from dragoman.model.search import generate_beam, generate_greedy
from dragoman.model.tokenizer.tokenizer import Tokenizer
from tests.support.cases import cases
from tests.support.ctranslate2_models import translate
from tests.support.marian_npz import CONFIG, KINDS, write_marian_npz

CASES = cases(__file__)

WANTED = ImportOptions("en", "de", max_source_tokens=60, max_target_tokens=20)
SENTENCES = 200
WORDS = ("alpha", "beta", "gamma", "delta", "one", "two", "three", "house", "garden", "river")
# Writes a model of a kind into a folder.
Write = Callable[[str], Path]


@pytest.fixture
def write(tokenizer: Tokenizer, tmp_path: Path) -> Write:
    return lambda kind: write_marian_npz(tmp_path / kind, tokenizer, kind)


def marian_encodings(width: int, positions: int = 2048) -> NDArray[np.float32]:
    """Returns the position encodings of Marian's function SinusoidalPositionEmbeddings."""
    half = width // 2
    table = np.zeros((positions, width), np.float32)
    for place in range(half):
        angles = np.arange(positions) * math.exp(-place * math.log(10000) / (half - 1))
        table[:, place], table[:, half + place] = np.sin(angles), np.cos(angles)
    return table


@pytest.mark.parametrize("kind", KINDS)
def test_ctranslate2_translates_alike(kind: str, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(kind)
    # The converter has other encodings than Marian.
    monkeypatch.setattr(converter, "_make_sinusoidal_position_encodings", marian_encodings)
    vocabularies = [str(folder / "opus.vocab.yml")] * 2
    theirs = Path(MarianConverter(str(folder / "model.npz"), vocabularies).convert(str(tmp_path / "ct2")))
    exportable = import_marian_files(folder, WANTED)
    random = np.random.default_rng(1)
    texts = [" ".join(random.choice(WORDS, random.integers(1, 8))) for _ in range(SENTENCES)]
    sources = [exportable.source_ids((), text) for text in texts]
    given = [[exportable.tokenizer.source_pieces[number] for number in source[:-1]] for source in sources]
    pieces = exportable.tokenizer.target_pieces
    for beam_size in (1, 4):
        network = exportable.network
        answers = generate_greedy(network, sources) if beam_size == 1 else generate_beam(network, sources, 4, 1.0)
        ours = [[pieces[number] for number in answer.target_ids] for answer in answers]
        assert ours == translate(theirs, given, beam_size, 20, 1.0)


@pytest.mark.parametrize(("option", "value"), CASES["another computation is refused by name"])
def test_another_computation_is_refused_by_name(option: str, value: object, write: Write) -> None:
    folder = write("base")
    with np.load(folder / "model.npz") as archive:
        stored = {name: archive[name] for name in archive.files}
    content = yaml.safe_dump({**CONFIG, option: value}).encode()
    np.savez(folder / "model.npz", **{**stored, "special:model.yml": np.frombuffer(content, np.int8)})
    with pytest.raises(ImportedModelError, match=f"{option}: {value}: expected"):
        import_marian_files(folder, WANTED)


def test_unknown_and_missing_tensors_are_refused_by_name(write: Write) -> None:
    folder = write("base")
    with np.load(folder / "model.npz") as archive:
        stored = {name: archive[name] for name in archive.files}
    np.savez(folder / "model.npz", **stored, encoder_extra=np.zeros((2, 2), np.float32))
    with pytest.raises(ImportedModelError, match="encoder_extra: unsupported tensor"):
        import_marian_files(folder, WANTED)
    del stored["decoder_l2_context_Wq"]
    np.savez(folder / "model.npz", **stored)
    with pytest.raises(ImportedModelError, match="decoder_l2_context_Wq: missing tensor"):
        import_marian_files(folder, WANTED)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04"])
def test_a_file_that_is_no_archive_is_refused(content: bytes, write: Write) -> None:
    folder = write("base")
    (folder / "model.npz").write_bytes(content)
    with pytest.raises(ImportedModelError, match=r"expected a \.npz file"):
        import_marian_files(folder, WANTED)


def test_pieces_of_a_vocabulary_are_plain_quoted_escaped_or_long(tmp_path: Path) -> None:
    lines = ["</s>: 0", '"\\u2581a": 1', "'it''s': 2", '"\\x41b": 3', "? long", ": 4", ":: 5", '"\\"": 6\r', ""]
    (tmp_path / "v.yml").write_text("\n".join(lines), encoding="utf-8")
    pieces = ["</s>", "\u2581a", "it's", "Ab", "long", ":", '"']
    assert read_vocabulary(tmp_path / "v.yml") == {piece: number for number, piece in enumerate(pieces)}


@pytest.mark.parametrize("line", ["piece", "piece: many", "- a", '"a: 1'])
def test_another_line_of_a_vocabulary_is_refused_by_its_number(line: str, tmp_path: Path) -> None:
    (tmp_path / "v.yml").write_text(f"a: 0\n{line}\n", encoding="utf-8")
    with pytest.raises(ImportedModelError, match="line 2: expected a piece"):
        read_vocabulary(tmp_path / "v.yml")


def test_aliases_of_a_configuration_take_no_memory(write: Write) -> None:
    folder = write("base")
    bomb = "\n".join([f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else 'x'] * 9)}]" for n in range(12)])
    content = f"{bomb}\n{yaml.safe_dump(CONFIG)}\ntransformer-tied-layers: *a11\n".encode()
    with np.load(folder / "model.npz") as archive:
        stored = {name: archive[name] for name in archive.files}
    np.savez(folder / "model.npz", **{**stored, "special:model.yml": np.frombuffer(content, np.int8)})
    with pytest.raises(ImportedModelError, match="transformer-tied-layers: list: expected"):
        import_marian_files(folder, WANTED)


def test_a_folder_is_exported_and_served_by_its_path(write: Write, tmp_path: Path) -> None:
    assert install(Store(tmp_path / "cache"), str(write("base").rename(tmp_path / "my-en-de"))).directions == ("en-de",)
