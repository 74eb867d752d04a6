"""Dragoman's model with `generate` of Hugging Face's `transformers`, in static batches.

A Transformer is converted to a model with the same parameters: post-norm becomes Marian, pre-norm Pegasus; both get
Dragoman's position encodings.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, MarianConfig, MarianMTModel, PegasusConfig, PegasusForConditionalGeneration

from benchmarks.harness.errors import BenchmarkError
from benchmarks.systems.pytorch_system import read_checkpoint
from benchmarks.systems.translating import LENGTH_PENALTY, BatchTranslator
from model.config import TransformerConfig
from model.data.batches import pad
from model.network.transformer import Transformer

# Supported values of the fields that decide whether an equivalent model exists.
KNOWN = {
    "norm": ("layer",),
    "norm_embeddings": (False,),
    "activation": ("relu", "gelu", "silu"),
    "tie_embeddings": (True,),
}


def check_known(name: str, config: TransformerConfig) -> None:
    """Checks that an equivalent model exists.

    Raises:
        BenchmarkError: if not; names the model and the field.
    """
    for field, values in KNOWN.items():
        value = getattr(config, field)
        if value not in values:
            problem = f"{field}: {value}: expected {' or '.join(map(str, values))}, as transformers supports"
            raise BenchmarkError(f"{name}: {problem}; leave transformers out of systems")


def to_transformers(model: Transformer) -> Any:
    """Returns the equivalent model in evaluation mode. It shares the parameters. The config passes `check_known`."""
    config = model.config
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
        converted = (MarianMTModel if post else PegasusForConditionalGeneration)(options)
    converted.load_state_dict(dict(_parameters(model)), assign=True)
    converted.tie_weights()
    converted.generation_config = GenerationConfig(**special)
    return converted.eval()


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
        for name, value in norm.named_parameters():  # a post-norm stack has none
            yield f"model.{side}.layer_norm.{name}", value
        for number, layer in enumerate(layers):
            yield from _layer(f"model.{side}.layers.{number}", layer)


def _layer(prefix: str, layer: Any) -> Iterator[tuple[str, Tensor]]:
    attentions = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
    for name, converted_name in attentions.items():
        if not hasattr(layer, name):
            continue
        attention = getattr(layer, name)
        for part in ("query", "key", "value"):
            yield from _named(f"{prefix}.{converted_name}.{part[0]}_proj", getattr(attention, part))
        yield from _named(f"{prefix}.{converted_name}.out_proj", attention.output)
        yield from _named(f"{prefix}.{converted_name}_layer_norm", getattr(layer, f"{name}_residual").norm)
    yield from _named(f"{prefix}.fc1", layer.feed_forward.inner)
    yield from _named(f"{prefix}.fc2", layer.feed_forward.outer)
    yield from _named(f"{prefix}.final_layer_norm", layer.feed_forward_residual.norm)


def _named(prefix: str, module: Any) -> Iterator[tuple[str, Tensor]]:
    for name, value in module.named_parameters():
        yield f"{prefix}.{name}", value


class GenerateTranslator(BatchTranslator):
    """Translates with `generate`."""

    def __init__(self, model: Any) -> None:
        self._model = model

    @torch.inference_mode()
    def generate(
        self, sources: list[Sequence[int]], limits: tuple[int, int], beam_size: int
    ) -> Iterable[Sequence[int]]:
        """Returns the target tokens of a batch, by `generate`."""
        config, (shortest, longest) = self._model.config, limits
        # With these options a beam stops at `beam_size` finished hypotheses, as in the other systems.
        beam: dict[str, Any] = {"early_stopping": True, "length_penalty": LENGTH_PENALTY} if beam_size > 1 else {}
        source_ids = pad(sources, config.pad_token_id)
        found = self._model.generate(
            input_ids=source_ids,
            attention_mask=source_ids != config.pad_token_id,
            num_beams=beam_size,
            min_new_tokens=shortest,
            max_new_tokens=longest,
            do_sample=False,
            **beam,
        )
        ends = {config.eos_token_id, config.pad_token_id}
        return [list(takewhile(lambda token_id: token_id not in ends, row)) for row in found[:, 1:].tolist()]


def load_transformers(folder: str, copies: int, threads: int) -> GenerateTranslator:
    """Returns one copy of a model in a checkpoint, with the threads of all copies."""
    torch.set_num_threads(copies * threads)
    return GenerateTranslator(to_transformers(read_checkpoint(Path(folder))))
