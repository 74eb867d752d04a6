"""Dragoman's model with `generate` of Hugging Face's `transformers`, in static batches.

A Transformer is converted to a model with the same parameters: post-norm becomes Marian, pre-norm Pegasus; both get
Dragoman's position encodings.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, MarianConfig, MarianMTModel, PegasusConfig, PegasusForConditionalGeneration

from benchmarks.systems.pytorch_system import read_checkpoint
from benchmarks.systems.translating import LENGTH_PENALTY, Batching, SourceSentence, Translator, translate_batches
from model.config import TransformerConfig
from model.data.batches import pad
from model.network.transformer import Transformer

# Supported values of the fields that decide whether an equivalent model exists.
KNOWN = {"norm": ("layer",), "activation": ("relu", "gelu", "silu"), "tie_embeddings": (True,)}


# Parts of parameter names of Dragoman's layers, and those of transformers; applied in this order.
NAMES = {
    r"^(encoder|decoder)_norm": r"model.\1.layer_norm",
    r"^(encoder|decoder)\.": r"model.\1.layers.",
    "self_attention": "self_attn",
    "cross_attention": "encoder_attn",
    r"(query|key|value)\.": lambda part: f"{part[1][0]}_proj.",
    r"attn\.output": "attn.out_proj",
    r"feed_forward\.inner": "fc1",
    r"feed_forward\.outer": "fc2",
    r"feed_forward_residual\.norm": "final_layer_norm",
    r"_residual\.norm": "_layer_norm",
}


class NoSuchModelError(Exception):
    """`transformers` has no equivalent model; the message names the field."""


def check_known(config: TransformerConfig) -> None:
    """Checks that an equivalent model exists.

    Raises:
        NoSuchModelError: if not.
    """
    for field, values in KNOWN.items():
        value = getattr(config, field)
        if value not in values:
            expected = " or ".join(map(str, values))
            raise NoSuchModelError(f"{field}: {value}: expected {expected}, as transformers supports")


def to_transformers(model: Transformer) -> Any:
    """Returns the equivalent model in evaluation mode. It shares the parameters.

    Raises:
        NoSuchModelError: if there is none.
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
    yield "model.encoder.embed_positions.weight", model.source_positions.table
    yield "model.decoder.embed_positions.weight", model.target_positions.table
    for name, value in model.named_parameters():
        if name.startswith(("encoder", "decoder")):
            for pattern, theirs in NAMES.items():
                name = re.sub(pattern, theirs, name)
            yield name, value


class GenerateTranslator(Translator):
    """Translates with `generate`."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def translate(self, sentences: Sequence[SourceSentence], beam_size: int, batching: Batching) -> list[Sequence[int]]:
        """Returns the target tokens of each sentence."""
        config = self._model.config
        ends = {config.eos_token_id, config.pad_token_id}
        # With these options a beam stops at `beam_size` finished hypotheses, as in the other systems.
        beam: dict[str, Any] = {"early_stopping": True, "length_penalty": LENGTH_PENALTY} if beam_size > 1 else {}

        @torch.inference_mode()
        def generate(sources: list[Sequence[int]], shortest: int, longest: int) -> list[list[int]]:
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
            return [list(takewhile(lambda token_id: token_id not in ends, row)) for row in found[:, 1:].tolist()]

        return translate_batches(sentences, batching, generate)


def load_transformers(folder: str, copies: int, threads: int) -> GenerateTranslator:
    """Returns one copy of a model in a checkpoint, with the threads of all copies."""
    torch.set_num_threads(copies * threads)
    return GenerateTranslator(to_transformers(read_checkpoint(Path(folder))))
