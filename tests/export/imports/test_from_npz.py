"""Models in Marian's own format translate like CTranslate2, which converts them too."""

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from ctranslate2.converters import MarianConverter
from ctranslate2.converters import marian as converter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dragoman.export.imports.common import ImportedModelError, ImportOptions
from dragoman.export.imports.marian_files import import_marian_files
from dragoman.export.imports.marian_vocabulary import read_vocabulary
from dragoman.export.torch_weights import to_weights
from dragoman.hub.install import install
from dragoman.hub.store import Store
from dragoman.model.search import generate_beam, generate_greedy
from dragoman.model.tokenizer.tokenizer import Tokenizer
from tests.support.cases import cases
from tests.support.ctranslate2_models import translate
from tests.support.toy import random_model

CASES = cases(__file__)

WANTED = ImportOptions("en", "de", max_source_tokens=60, max_target_tokens=20)
SENTENCES = 200
WORDS = ("alpha", "beta", "gamma", "delta", "one", "two", "three", "house", "garden", "river")
CONFIG: dict[str, Any] = {"type": "transformer", "transformer-heads": 4, "enc-depth": 2, "dec-depth": 2}
CONFIG |= {"transformer-decoder-autoreg": "self-attention", "transformer-no-projection": False}
CONFIG |= {"transformer-ffn-activation": "swish", "transformer-guided-alignment-layer": "last"}
CONFIG |= {"transformer-preprocess": "", "transformer-postprocess": "dan"}
CONFIG |= {"transformer-postprocess-emb": "d", "transformer-postprocess-top": ""}
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "base": ({"activation": "silu"}, {}),
    "relu": ({"activation": "relu"}, {"transformer-ffn-activation": "relu"}),
    "untied": ({"activation": "silu", "tie_embeddings": False}, {}),
}
# Writes a model of a kind into a folder.
Write = Callable[[str], Path]
NAMES = {"self_attention": "self", "cross_attention": "context"}


def write_npz(path: Path, parameters: dict[str, Any], config: dict[str, Any]) -> None:
    stored: dict[str, Any] = {"special:model.yml": np.frombuffer(yaml.safe_dump(config).encode() + b"\0", np.int8)}
    for name, value in parameters.items():
        stored |= marian_names(name, value)
    np.savez(path, **stored)


def marian_names(name: str, value: Any) -> dict[str, Any]:
    parts = name.split(".")
    row = value.reshape(1, -1)
    if parts[0] in ("encoder", "decoder"):
        layer = f"{parts[0]}_l{int(parts[1]) + 1}"
        kind, end = parts[2].removesuffix("_residual"), {"weight": "W", "bias": "b"}[parts[-1]]
        if parts[2].endswith("_residual"):
            place = f"{layer}_ffn_ffn" if kind == "feed_forward" else f"{layer}_{NAMES[kind]}_Wo"
            return {f"{place}_ln_{'scale' if end == 'W' else 'bias'}": row}
        suffix = {"inner": "1", "outer": "2"}.get(parts[3], parts[3][0])
        place = f"{layer}_ffn" if kind == "feed_forward" else f"{layer}_{NAMES[kind]}"
        return {f"{place}_{end}{suffix}": value.T if end == "W" else row}
    fixed = {"embedding.weight": "Wemb", "target_embedding.weight": "decoder_Wemb"}
    if name in fixed:
        return {fixed[name]: value}
    return {"decoder_ff_logit_out_W": value.T} if name == "output.weight" else {}


@pytest.fixture
def write(tokenizer: Tokenizer, tmp_path: Path) -> Write:
    def write_kind(kind: str) -> Path:
        options, changed = KINDS[kind]
        pieces = [*tokenizer.source_pieces]
        sizes = {"d_model": 64, "d_ff": 96, "heads": 4, "encoder_layers": 2, "decoder_layers": 2}
        weights = to_weights(random_model(7, len(pieces), **sizes, **options))
        folder = tmp_path / kind
        folder.mkdir()
        bias = {"decoder_ff_logit_out_b": np.random.default_rng(1).normal(size=(1, len(pieces))).astype(np.float32)}
        parameters = dict(weights.parameters)
        if kind == "untied":
            parameters["encoder_own"] = parameters.pop("embedding.weight")
        write_npz(folder / "model.npz", parameters, {**CONFIG, **changed})
        with np.load(folder / "model.npz") as archive:
            stored = {name: archive[name] for name in archive.files} | bias
        if kind == "untied":
            stored["encoder_Wemb"] = parameters["encoder_own"]
        np.savez(folder / "model.npz", **stored)
        vocabulary = {piece: number for number, piece in enumerate(pieces)}
        (folder / "opus.vocab.yml").write_text(yaml.safe_dump(vocabulary, allow_unicode=True, sort_keys=False))
        for side in ("source", "target"):
            (folder / f"{side}.spm").write_bytes(tokenizer.model)
        return folder

    return write_kind


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


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_mutated_model_is_imported_or_refused_in_one_line(data: st.DataObject, fuzzed: Path) -> None:
    content = bytearray((fuzzed / "original").read_bytes())
    # Most bytes are weights: the directory at the end and the headers at the start decide.
    near = st.one_of(st.integers(0, 4000), st.integers(len(content) - 8000, len(content) - 1))
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(near)] = data.draw(st.integers(0, 255))
    (fuzzed / "model.npz").write_bytes(content)
    try:
        import_marian_files(fuzzed, WANTED)
    except ImportedModelError as error:
        assert str(error).isprintable()  # noqa: PT017 - some mutations change weights only


@pytest.fixture
def fuzzed(write: Write) -> Path:
    """A folder whose model a test replaces by mutations of the original."""
    folder = write("base")
    shutil.copy(folder / "model.npz", folder / "original")
    return folder
