"""`python -m tests.support.conversion_memory PRECISION FOLDER...`: converts models; prints the sizes of memory.

`write_random_m2m100` writes a checkpoint of any size, of which memory never holds more than one tensor.
"""

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

import export.graph_decoder  # noqa: F401 - the memory of the library is not that of the conversion
from benchmarks.harness.process import peak_bytes
from export.imports.common import ImportOptions
from export.imports.ctranslate2 import import_ctranslate2
from export.imports.fairseq import fairseq_pieces
from export.imports.golden import golden_samples
from export.imports.hugging_face import import_checkpoint
from export.imports.marian_files import import_marian_files
from export.imports.marian_folder import is_marian_folder
from export.imports.multilingual import M2M100_LANGUAGES
from export.make_bundle import BundleOptions, write_bundle
from serve.bundle.manifest import Precision

ASKED = ImportOptions("en", "de", 64, 16)
SENTENCES = 4


class Form(NamedTuple):
    """The sizes of a model."""

    width: int
    inner: int
    layers: int
    heads: int
    vocabulary: int


def parameter_shapes(form: Form) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields the parameters of M2M100's form by the names of `transformers`."""
    width, inner, layers, _, vocabulary = form
    yield "model.shared.weight", (vocabulary, width)
    for side, attentions in (("encoder", ("self_attn",)), ("decoder", ("self_attn", "encoder_attn"))):
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


def write_safetensors(path: Path, shapes: Sequence[tuple[str, tuple[int, ...]]]) -> None:
    """Writes random float32 tensors."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes:
        first, end = end, end + 4 * prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": (first, end)}
    content = json.dumps(header).encode()
    content += b" " * (-len(content) % 8)
    random = np.random.default_rng(1)
    with path.open("wb") as file:
        file.write(len(content).to_bytes(8, "little") + content)
        for name, shape in shapes:
            scale = {1: 0.1, 2: (2 / sum(shape)) ** 0.5}[len(shape)]
            values = random.standard_normal(shape, np.float32) * np.float32(scale)
            file.write((values + np.float32(name.endswith("norm.weight"))).data)


def write_random_m2m100(folder: Path, pieces: bytes, form: Form) -> int:
    """Writes a checkpoint of M2M100's form with a SentencePiece model; returns the size of its weights in bytes."""
    folder.mkdir()
    sizes = {"layers": form.layers, "ffn_dim": form.inner, "attention_heads": form.heads}
    config = {
        "model_type": "m2m_100",
        "is_encoder_decoder": True,
        "d_model": form.width,
        **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()},
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
    names = [*fairseq_pieces(pieces), *(f"word{number}" for number in range(count))][:count]
    vocabulary = {piece: number for number, piece in enumerate(names)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "sentencepiece.bpe.model").write_bytes(pieces)
    path = folder / "model.safetensors"
    write_safetensors(path, list(parameter_shapes(form)))
    return path.stat().st_size


def convert(folder: Path, precision: Precision, out: Path) -> int:
    """Converts a model, whose kind its files determine; returns the size of the bundle in bytes."""
    read = import_marian_files if is_marian_folder(folder) else import_checkpoint
    exportable = (import_ctranslate2 if (folder / "model.bin").exists() else read)(folder, ASKED)
    bundle = write_bundle(exportable, golden_samples(exportable)[:SENTENCES], out, BundleOptions("m", "cpu", precision))
    return sum(path.stat().st_size for path in bundle.folder.iterdir())


def main() -> None:
    """Prints a JSON object: sizes of the bundles, and by how much the peak of memory grew."""
    precision, *folders = sys.argv[1:]
    before = peak_bytes()
    with tempfile.TemporaryDirectory(dir=Path(folders[0]).parent) as temporary:
        sizes = [
            convert(Path(folder), cast("Precision", precision), Path(temporary) / str(number))
            for number, folder in enumerate(folders)
        ]
    print(json.dumps({"bundles": sizes, "memory": peak_bytes() - before, "libraries": before}))


if __name__ == "__main__":
    main()
