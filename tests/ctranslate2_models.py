"""CTranslate2 models made by its own library of our Transformers, and Argos packages of them."""

import json
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerSpec, common_spec
from numpy.typing import NDArray
from torch import Tensor

from export.ctranslate2_file import TYPES, Variable
from model.attention import MultiHeadAttention
from model.tokenizer import Tokenizer
from model.transformer import Transformer

ACTIVATIONS = {"relu": 0, "silu": 2, "swiglu": 2, "gelu": 3}
OURS = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "decoder_start_token": "<s>"}


def spec_of(model: Transformer, pieces: Sequence[str], **config: Any) -> TransformerSpec:
    """Returns our model as CTranslate2 describes it."""
    options = model.config
    spec = TransformerSpec.from_config(
        (options.encoder_layers, options.decoder_layers),
        options.heads,
        pre_norm=options.norm_position == "pre",
        activation=common_spec.Activation(ACTIVATIONS[options.activation]),
        ffn_glu=options.activation == "swiglu",
        rms_norm=options.norm == "rms",
    )
    for stack, layers, weight, positions, norm in (
        (spec.encoder, model.encoder_layers, model.source_weight, model.source_positions, model.encoder_norm),
        (spec.decoder, model.decoder_layers, model.target_weight, model.target_positions, model.decoder_norm),
    ):
        embeddings = stack.embeddings[0] if isinstance(stack.embeddings, list) else stack.embeddings
        embeddings.weight = array(weight)
        stack.scale_embeddings = options.scale_embeddings
        stack.position_encodings.encodings = array(positions.table)
        if options.norm_position == "pre":
            set_norm(stack.layer_norm, norm)
        for theirs, ours in zip(stack.layer, layers, strict=True):
            set_layer(theirs, ours)
    spec.decoder.projection.weight = array(model.output_weight)
    if model.output_bias is not None:
        spec.decoder.projection.bias = array(model.output_bias)
    for name, value in {**OURS, "add_source_eos": True, "layer_norm_epsilon": 1e-5, **config}.items():
        setattr(spec.config, name, value)
    spec.register_source_vocabulary(list(pieces))
    spec.register_target_vocabulary(list(pieces))
    return spec


def fill_with_zeros(spec: Any, vocabulary_size: int, width: int = 8) -> None:
    """Gives every parameter that a specification lacks a shape of which two and three parts can be made."""

    def fill(scope: Any, name: str, value: object) -> None:
        if value is None:
            rows = vocabulary_size if "embeddings" in name or "projection" in name else 6 * width
            setattr(scope, name.rpartition("/")[2], np.zeros((rows, width), np.float32))

    spec._visit(fill)


def set_layer(theirs: Any, ours: Any) -> None:
    """Describes a layer of either stack."""
    set_attention(theirs.self_attention, ours.self_attention, ("query", "key", "value"))
    set_norm(theirs.self_attention.layer_norm, ours.self_attention_residual.norm)
    if hasattr(ours, "cross_attention"):
        set_attention(theirs.attention, ours.cross_attention, ("query",), ("key", "value"))
        set_norm(theirs.attention.layer_norm, ours.cross_attention_residual.norm)
    network = ours.feed_forward
    gated = hasattr(network, "gate")
    set_linear(theirs.ffn.linear_0, network.gate if gated else network.inner)
    if gated:
        set_linear(theirs.ffn.linear_0_noact, network.inner)
    set_linear(theirs.ffn.linear_1, network.outer)
    set_norm(theirs.ffn.layer_norm, ours.feed_forward_residual.norm)


def set_attention(theirs: Any, ours: MultiHeadAttention, *packs: tuple[str, ...]) -> None:
    """Describes an attention whose projections are packed."""
    for linear, names in zip(theirs.linear, packs, strict=False):
        parts = [getattr(ours, name) for name in names]
        linear.weight = np.concatenate([array(part.weight) for part in parts])
        linear.bias = np.concatenate([array(part.bias) for part in parts])
    set_linear(theirs.linear[-1], ours.output)


def set_linear(theirs: Any, ours: Any) -> None:
    """Describes a projection."""
    theirs.weight = array(ours.weight)
    if ours.bias is not None:
        theirs.bias = array(ours.bias)


def set_norm(theirs: Any, ours: Any) -> None:
    """Describes a normalisation."""
    theirs.gamma = array(ours.weight)
    if hasattr(theirs, "beta"):
        theirs.beta = array(ours.bias)


def array(tensor: Tensor) -> NDArray[np.float32]:
    """Returns a copy: quantisation works in place."""
    return np.array(tensor.detach().numpy())


def write_model(folder: Path, spec: TransformerSpec, kind: str = "float32", tokenizer: Tokenizer | None = None) -> Path:
    """Writes a model into a new folder, with weights of a kind, and a tokenizer beside it."""
    folder.mkdir(parents=True)
    spec.validate()
    spec.optimize(quantization=kind)
    spec.save(str(folder))
    if tokenizer is not None:
        (folder / "sentencepiece.model").write_bytes(tokenizer.model)
    return folder


def translate(
    folder: Path, sources: Sequence[Sequence[str]], beam_size: int, limit: int, length_penalty: float = 0.0
) -> list[list[str]]:
    """Returns the pieces of the translations that CTranslate2 finds, computing with float32."""
    translator = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    results = translator.translate_batch(
        [list(pieces) for pieces in sources],
        beam_size=beam_size,
        max_decoding_length=limit,
        length_penalty=length_penalty,
        min_decoding_length=0,
    )
    return [result.hypotheses[0] for result in results]


def write_package(path: Path, model: Path, tokenizer: bytes, **metadata: object) -> Path:
    """Writes an Argos package of a model."""
    told = {"package_version": "1.0", "argos_version": "1.5", "from_code": "en", "to_code": "de", **metadata}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("en_de/metadata.json", json.dumps(told))
        archive.writestr("en_de/README.md", "A model of ours.")
        archive.writestr("en_de/sentencepiece.model", tokenizer)
        for file in sorted(model.iterdir()):
            if file.name != "sentencepiece.model":
                archive.write(file, f"en_de/model/{file.name}")
    return path


def text(content: str) -> bytes:
    """Returns a string of model.bin."""
    return struct.pack("<H", len(content) + 1) + content.encode() + b"\0"


def variable(name: str, value: NDArray[np.generic], version: int) -> bytes:
    """Returns a variable of model.bin."""
    shape = b"".join(struct.pack("<I", size) for size in value.shape)
    kind = TYPES.index(value.dtype.name) if version >= 4 else value.itemsize
    length = value.nbytes if version >= 4 else value.size
    return text(name) + bytes([value.ndim]) + shape + struct.pack("<BI", kind, length) + value.tobytes()


def model_file(
    variables: dict[str, Variable], aliases: Sequence[tuple[str, str]] = (), version: int = 6, revision: int = 7
) -> bytes:
    """Returns the bytes of a model, as CTranslate2 would write them."""
    content = struct.pack("<I", version) + text("TransformerSpec") + struct.pack("<II", revision, len(variables))
    content += b"".join(variable(name, value, version) for name, value in variables.items())
    if version >= 3:
        content += struct.pack("<I", len(aliases)) + b"".join(text(alias) + text(name) for alias, name in aliases)
    return content
