"""Models of any size with random weights, of which memory never holds more than one tensor."""

import json
import zipfile
from collections.abc import Iterable, Iterator
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray

from dragoman.export.imports.fairseq import SENTENCEPIECE_FILE, fairseq_pieces
from dragoman.export.imports.multilingual import M2M100_LANGUAGES
from tests.support.marian import marian_vocabulary, train_pieces

Shapes = Iterable[tuple[str, tuple[int, ...]]]
Tensors = Iterator[tuple[str, NDArray[np.float32]]]
SIDES = ("encoder", "decoder")


class Form(NamedTuple):
    """The sizes of a model."""

    width: int
    inner: int
    layers: int
    heads: int
    vocabulary: int


def random_tensors(shapes: Shapes) -> Tensors:
    """Yields random values; gains of normalizations are about 1."""
    random = np.random.default_rng(1)
    for name, shape in shapes:
        is_vector = prod(shape) == max(shape)
        scale = np.float32(0.1 if is_vector else (2 / sum(shape)) ** 0.5)
        gain = np.float32(name.endswith(("norm.weight", "ln_scale")))
        yield name, random.standard_normal(shape, np.float32) * scale + gain


def write_safetensors(path: Path, shapes: Shapes) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    shapes = list(shapes)
    for name, shape in shapes:
        first, end = end, end + 4 * prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": (first, end)}
    content = json.dumps(header).encode()
    content += b" " * (-len(content) % 8)
    with path.open("wb") as file:
        file.write(len(content).to_bytes(8, "little") + content)
        for _, values in random_tensors(shapes):
            file.write(values.data)


def m2m100_shapes(form: Form) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields the parameters of M2M100's form by the names of `transformers`."""
    width, inner, layers, _, vocabulary = form
    yield "model.shared.weight", (vocabulary, width)
    for side, attentions in zip(SIDES, (("self_attn",), ("self_attn", "encoder_attn")), strict=True):
        for number in range(layers):
            layer = f"model.{side}.layers.{number}"
            sizes = {"fc1": (inner, width), "fc2": (width, inner)}
            for attention in attentions:
                sizes |= {f"{attention}.{part}_proj": (width, width) for part in ("q", "k", "v", "out")}
            for name, (rows, columns) in sizes.items():
                yield f"{layer}.{name}.weight", (rows, columns)
                yield f"{layer}.{name}.bias", (rows,)
            for norm in (*(f"{attention}_layer_norm" for attention in attentions), "final_layer_norm"):
                yield from ((f"{layer}.{norm}.{part}", (width,)) for part in ("weight", "bias"))
        yield from ((f"model.{side}.layer_norm.{part}", (width,)) for part in ("weight", "bias"))


def write_random_m2m100(folder: Path, pieces: bytes, form: Form) -> int:
    """Writes a checkpoint of M2M100's form with a SentencePiece model; returns the size of its weights in bytes."""
    folder.mkdir()
    sizes = {"layers": form.layers, "ffn_dim": form.inner, "attention_heads": form.heads}
    config = {
        "model_type": "m2m_100",
        "is_encoder_decoder": True,
        "d_model": form.width,
        **{f"{side}_{name}": size for side in SIDES for name, size in sizes.items()},
        "vocab_size": form.vocabulary,
        "activation_function": "relu",
        "max_position_embeddings": 1024,
        "scale_embedding": True,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(config))
    count = form.vocabulary - len(M2M100_LANGUAGES)
    model = folder / SENTENCEPIECE_FILE
    model.write_bytes(pieces)
    names = [*fairseq_pieces(model, pieces), *(f"word{number}" for number in range(count))][:count]
    (folder / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(names)}))
    path = folder / "model.safetensors"
    write_safetensors(path, m2m100_shapes(form))
    return path.stat().st_size


def npz_shapes(form: Form) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields the parameters of a Transformer by the names of Marian."""
    width, inner, layers, _, vocabulary = form
    yield "Wemb", (vocabulary, width)
    yield "decoder_ff_logit_out_b", (1, vocabulary)
    for side, attentions in zip(SIDES, (("self",), ("self", "context")), strict=True):
        for layer in (f"{side}_l{number + 1}" for number in range(layers)):
            for attention in attentions:
                for part in "qkvo":
                    yield f"{layer}_{attention}_W{part}", (width, width)
                    yield f"{layer}_{attention}_b{part}", (1, width)
            for part, sizes in (("1", (width, inner)), ("2", (inner, width))):
                yield f"{layer}_ffn_W{part}", sizes
                yield f"{layer}_ffn_b{part}", (1, sizes[1])
            for norm in (*(f"{attention}_Wo" for attention in attentions), "ffn_ffn"):
                yield from ((f"{layer}_{norm}_ln_{part}", (1, width)) for part in ("scale", "bias"))


def write_random_npz(folder: Path, form: Form) -> int:
    """Writes a model in Marian's own format; returns the size of its weights in bytes."""
    folder.mkdir()
    config = {
        "type": "transformer",
        "transformer-heads": form.heads,
        "enc-depth": form.layers,
        "dec-depth": form.layers,
        "transformer-postprocess": "dan",
    }
    options = np.frombuffer(yaml.safe_dump(config).encode() + b"\0", np.int8)
    path = folder / "model.npz"
    with zipfile.ZipFile(path, "w") as archive:
        _write_member(archive, "special:model.yml", options)
        for name, values in random_tensors(npz_shapes(form)):
            _write_member(archive, name, values)
    names = [*marian_vocabulary(), *(f"word{number}" for number in range(form.vocabulary))][: form.vocabulary]
    lines = (f"{json.dumps(piece)}: {number}\n" for number, piece in enumerate(names))
    (folder / "opus.vocab.yml").write_text("".join(lines))
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(train_pieces(side))
    return path.stat().st_size


def _write_member(archive: zipfile.ZipFile, name: str, values: NDArray[Any]) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array(member, values)
