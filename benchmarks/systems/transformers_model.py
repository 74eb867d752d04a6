"""Our Transformers as models of Hugging Face's `transformers`: the same parameters, under other names.

A post-norm stack is a Marian model, a pre-norm one a Pegasus model; both take the position encodings from us. Called by
`benchmarks.systems.transformers_translator`.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, MarianConfig, MarianMTModel, PegasusConfig, PegasusForConditionalGeneration

from model.config import TransformerConfig
from model.network.transformer import Transformer

# What decides whether there is a model that computes the same, and what each field has to be.
KNOWN = {"norm": ("layer",), "activation": ("relu", "gelu", "silu"), "tie_embeddings": (True,)}


class NoSuchModelError(Exception):
    """No model of `transformers` computes what ours does; the message names the field."""


def check_known(config: TransformerConfig) -> None:
    """Checks that there is a model that computes the same.

    Raises:
        NoSuchModelError: if there is none.
    """
    for field, values in KNOWN.items():
        value = getattr(config, field)
        if value not in values:
            expected = " or ".join(map(str, values))
            raise NoSuchModelError(f"{field}: {value}: expected {expected}, as the models of transformers have it")


def to_transformers(model: Transformer) -> Any:
    """Returns the same model, in evaluation mode; it shares our parameters.

    Raises:
        NoSuchModelError: if there is none that computes the same.
    """
    config = model.config
    check_known(config)
    post = config.norm_position == "post"
    special = {"pad_token_id": model.pad_id, "eos_token_id": model.eos_id, "decoder_start_token_id": model.bos_id}
    options = (MarianConfig if post else PegasusConfig)(
        vocab_size=model.vocabulary_size,
        d_model=config.d_model,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        encoder_attention_heads=config.heads,
        decoder_attention_heads=config.heads,
        encoder_ffn_dim=config.d_ff,
        decoder_ffn_dim=config.d_ff,
        activation_function=config.activation,
        scale_embedding=config.scale_embeddings,
        max_position_embeddings=len(model.source_positions.table),
        forced_eos_token_id=None,
        **special,
    )
    with torch.device("meta"):
        theirs = (MarianMTModel if post else PegasusForConditionalGeneration)(options)
    theirs.load_state_dict(dict(_parameters(model)), assign=True)
    theirs.tie_weights()
    theirs.generation_config = GenerationConfig(**special)
    return theirs.eval()


def _parameters(model: Transformer) -> Iterator[tuple[str, Tensor]]:
    bias = model.output_bias
    yield "final_logits_bias", torch.zeros(1, model.vocabulary_size) if bias is None else bias.data[None]
    for name in ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"):
        yield f"{name}.weight", model.source_weight
    for side, positions, layers, norm in (
        ("encoder", model.source_positions, model.encoder_layers, model.encoder_norm),
        ("decoder", model.target_positions, model.decoder_layers, model.decoder_norm),
    ):
        yield f"model.{side}.embed_positions.weight", positions.table
        for name, value in norm.named_parameters():  # none of a post-norm stack
            yield f"model.{side}.layer_norm.{name}", value
        for number, layer in enumerate(layers):
            yield from _layer(f"model.{side}.layers.{number}", layer)


def _layer(prefix: str, layer: Any) -> Iterator[tuple[str, Tensor]]:
    attentions = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
    for ours, theirs in attentions.items():
        if not hasattr(layer, ours):
            continue
        attention = getattr(layer, ours)
        for part in ("query", "key", "value"):
            yield from _named(f"{prefix}.{theirs}.{part[0]}_proj", getattr(attention, part))
        yield from _named(f"{prefix}.{theirs}.out_proj", attention.output)
        yield from _named(f"{prefix}.{theirs}_layer_norm", getattr(layer, f"{ours}_residual").norm)
    yield from _named(f"{prefix}.fc1", layer.feed_forward.inner)
    yield from _named(f"{prefix}.fc2", layer.feed_forward.outer)
    yield from _named(f"{prefix}.final_layer_norm", layer.feed_forward_residual.norm)


def _named(prefix: str, module: Any) -> Iterator[tuple[str, Tensor]]:
    for name, value in module.named_parameters():
        yield f"{prefix}.{name}", value
