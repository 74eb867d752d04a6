"""Our Transformers as CTranslate2 models, written by its own library: the same weights for both in a comparison.

Needs torch and ctranslate2, of which the former holds the weights and the latter knows the file format. Called by
`benchmarks.systems.compared_model`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ctranslate2.specs import TransformerSpec, common_spec
from numpy.typing import NDArray
from torch import Tensor

from model.network.attention import MultiHeadAttention
from model.network.transformer import Transformer

ACTIVATIONS = {"relu": 0, "silu": 2, "swiglu": 2, "gelu": 3}
OURS = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "decoder_start_token": "<s>"}


def spec_of(model: Transformer, pieces: Sequence[str], **config: Any) -> TransformerSpec:
    """Returns our model as CTranslate2 describes it.

    Args:
        model: whose parameters are copied.
        pieces: its tokens, in the order of their ids.
        config: settings of the model's config.json, over those that a model of ours has.
    """
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
        embeddings.weight = _array(weight)
        stack.scale_embeddings = options.scale_embeddings
        stack.position_encodings.encodings = _array(positions.table)
        if options.norm_position == "pre":
            _set_norm(stack.layer_norm, norm)
        for theirs, ours in zip(stack.layer, layers, strict=True):
            _set_layer(theirs, ours)
    spec.decoder.projection.weight = _array(model.output_weight)
    if model.output_bias is not None:
        spec.decoder.projection.bias = _array(model.output_bias)
    for name, value in {**OURS, "add_source_eos": True, "layer_norm_epsilon": 1e-5, **config}.items():
        setattr(spec.config, name, value)
    spec.register_source_vocabulary(list(pieces))
    spec.register_target_vocabulary(list(pieces))
    return spec


def write_model(folder: Path, spec: TransformerSpec, kind: str = "float32") -> Path:
    """Writes a model into a new folder.

    Args:
        folder: must not exist.
        spec: of `spec_of`, which must not be written again: quantization works in place.
        kind: of the weights: float32, float16, bfloat16, int16 or int8.
    """
    folder.mkdir(parents=True)
    spec.validate()
    spec.optimize(quantization=kind)
    spec.save(str(folder))
    return folder


def _set_layer(theirs: Any, ours: Any) -> None:
    """Describes a layer of either stack."""
    _set_attention(theirs.self_attention, ours.self_attention, ("query", "key", "value"))
    _set_norm(theirs.self_attention.layer_norm, ours.self_attention_residual.norm)
    if hasattr(ours, "cross_attention"):
        _set_attention(theirs.attention, ours.cross_attention, ("query",), ("key", "value"))
        _set_norm(theirs.attention.layer_norm, ours.cross_attention_residual.norm)
    network = ours.feed_forward
    gated = hasattr(network, "gate")
    _set_linear(theirs.ffn.linear_0, network.gate if gated else network.inner)
    if gated:
        _set_linear(theirs.ffn.linear_0_noact, network.inner)
    _set_linear(theirs.ffn.linear_1, network.outer)
    _set_norm(theirs.ffn.layer_norm, ours.feed_forward_residual.norm)


def _set_attention(theirs: Any, ours: MultiHeadAttention, *packs: tuple[str, ...]) -> None:
    """Describes an attention whose projections are packed."""
    for linear, names in zip(theirs.linear, packs, strict=False):
        parts = [getattr(ours, name) for name in names]
        linear.weight = np.concatenate([_array(part.weight) for part in parts])
        linear.bias = np.concatenate([_array(part.bias) for part in parts])
    _set_linear(theirs.linear[-1], ours.output)


def _set_linear(theirs: Any, ours: Any) -> None:
    """Describes a projection."""
    theirs.weight = _array(ours.weight)
    if ours.bias is not None:
        theirs.bias = _array(ours.bias)


def _set_norm(theirs: Any, ours: Any) -> None:
    """Describes a normalization."""
    theirs.gamma = _array(ours.weight)
    if hasattr(theirs, "beta"):
        theirs.beta = _array(ours.bias)


def _array(tensor: Tensor) -> NDArray[np.float32]:
    """Returns a copy: quantization works in place."""
    return np.array(tensor.detach().numpy())
