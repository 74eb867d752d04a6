"""Random models in Marian's own format, as OPUS-MT publishes them."""

from pathlib import Path
from typing import Any

import numpy as np
import yaml

from dragoman.export.torch_weights import to_weights
from dragoman.model.tokenizer.tokenizer import Tokenizer
from tests.support.toy import random_model

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
NAMES = {"self_attention": "self", "cross_attention": "context"}


def write_npz(path: Path, parameters: dict[str, Any], config: dict[str, Any], **more: Any) -> None:
    stored: dict[str, Any] = {"special:model.yml": np.frombuffer(yaml.safe_dump(config).encode() + b"\0", np.int8)}
    for name, value in parameters.items():
        stored |= marian_names(name, value)
    np.savez(path, **stored, **more)


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


def write_marian_npz(folder: Path, tokenizer: Tokenizer, kind: str = "base", layers: int = 2) -> Path:
    """Writes a model of one of `KINDS` into a new folder."""
    options, changed = KINDS[kind]
    pieces = [*tokenizer.source_pieces]
    sizes = {"d_model": 64, "d_ff": 96, "heads": 4, "encoder_layers": layers, "decoder_layers": layers}
    weights = to_weights(random_model(7, len(pieces), **sizes, **options))
    folder.mkdir()
    bias = {"decoder_ff_logit_out_b": np.random.default_rng(1).normal(size=(1, len(pieces))).astype(np.float32)}
    parameters = dict(weights.parameters)
    if kind == "untied":
        bias["encoder_Wemb"] = parameters.pop("embedding.weight")
    write_npz(folder / "model.npz", parameters, {**CONFIG, "enc-depth": layers, "dec-depth": layers, **changed}, **bias)
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    (folder / "opus.vocab.yml").write_text(yaml.safe_dump(vocabulary, allow_unicode=True, sort_keys=False))
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(tokenizer.model)
    return folder
