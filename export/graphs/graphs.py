"""The seam between architectures and their export: what each one gives is an encoder, a decoder step and a state.

`export.graphs.to_onnx` and the server know a model only in this form. Each architecture has a module of its own with
the PyTorch modules; this one chooses.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import nn

from export.graphs.attention import AttentionOperators, ContribAttention, CudaAttention, StandardAttention
from export.graphs.calibration import Observed, cache_scale, cached_layers
from export.graphs.quantized_attention import CacheScales, QuantizedAttention
from export.graphs.quantized_graph import quantized
from export.graphs.recurrent import RecurrentDecoderGraph, RecurrentEncoderGraph, recurrent_states
from export.graphs.transformer import DecoderGraph, EncoderGraph
from model.config import TransformerConfig
from model.network.recurrent import Recurrent
from model.network.transformer import Transformer
from model.network.translation_model import TranslationModel
from serve.bundle.manifest import EIGHT_BITS, AttentionHead, Element, GraphVariant, Precision, StateSpec


@dataclass(frozen=True, slots=True)
class Graphs:
    """A model as two modules whose forwards are the signatures of its ONNX graphs. B, R rows, S source length.

    Attributes:
        encoder: maps source_ids, int64 [B, S], and source_lengths, int32 [B], to a list: the initial value of every
            state of source and recurrent kind, in the order of `states`, each [B, *shape] with S for "source".
        decoder: maps token_ids, int64 [R], positions, int32 [R], source_lengths, int32 [R], and a list with the value
            of every state, [R, *shape], to a list: logits, float [R, V], then the next value of every state of target
            and recurrent kind, in the order of `states`.
        states: what the decoder remembers.
        dtype: of the states that are floats.
        aligned_decoder: the same as `decoder`, with one more output: how much each of the chosen heads of
            cross-attention looked at each source position, float [R, A, C] with the capacity C of the source states.
    """

    encoder: nn.Module
    decoder: nn.Module
    states: tuple[StateSpec, ...]
    dtype: torch.dtype = torch.float32
    aligned_decoder: nn.Module | None = None


ATTENTION: dict[GraphVariant, type[AttentionOperators]] = {
    "cpu": ContribAttention,
    "cuda": CudaAttention,
    "portable": StandardAttention,
}

NOTHING_OBSERVED = Observed({}, {})


class UnsupportedGraphError(Exception):
    """An architecture has no such graphs; the message names the option and what was expected."""


def graphs_of(
    model: TranslationModel,
    variant: GraphVariant = "cpu",
    precision: Precision = "fp32",
    alignment_heads: Sequence[AttentionHead] = (),
    observed: Observed = NOTHING_OBSERVED,
) -> Graphs:
    """Returns the graphs of a trained model, which hold its parameters.

    Args:
        model: the model. Those of recurrent ones are made of standard operators in every variant.
        variant: what the graphs are made of.
        precision: what they compute in.
        alignment_heads: whose weights an aligned decoder is to give; none: there is no such decoder.
        observed: of the model, for static quantization: a layer that is not there has a scale for every row, and caches
            that are not there are floats.

    Raises:
        UnsupportedGraphError: if the architecture has no such graphs, or not these heads.
    """
    if isinstance(model, Transformer):
        return _transformer_graphs(model, variant, precision, alignment_heads, observed)
    if variant == "cuda":
        raise UnsupportedGraphError("variant: cuda: expected cpu, as this is no Transformer")
    if precision != "fp32":
        raise UnsupportedGraphError(f"precision: {precision}: expected fp32, as this is no Transformer")
    if alignment_heads:
        raise UnsupportedGraphError("align: expected none, as this is no Transformer")
    if isinstance(model, Recurrent):
        states = tuple(StateSpec(name=name, shape=shape) for name, shape in recurrent_states(model.config))
        return Graphs(RecurrentEncoderGraph(model), RecurrentDecoderGraph(model), states)
    raise TypeError(f"{type(model).__name__}: no graphs are known for this architecture")


def _transformer_graphs(
    model: Transformer,
    variant: GraphVariant,
    precision: Precision,
    alignment_heads: Sequence[AttentionHead],
    observed: Observed,
) -> Graphs:
    layers, heads = model.config.decoder_layers, model.config.heads
    for chosen in alignment_heads:
        if chosen.layer >= layers or chosen.head >= heads:
            expected = f"a layer below {layers} and a head below {heads}, LAYER:HEAD"
            raise UnsupportedGraphError(f"align: {chosen}: expected {expected}")
    if (variant == "cuda") != (precision == "fp16"):
        expected = "fp16 with the variant cuda, and only with it"
        raise UnsupportedGraphError(f"precision: {precision} with the variant {variant}: expected {expected}")
    attention = _quantized_attention(model, observed) if observed.caches else ATTENTION[variant](heads)
    modules: list[nn.Module] = [EncoderGraph(model, attention), DecoderGraph(model, attention)]
    if alignment_heads:
        modules.append(DecoderGraph(model, attention, alignment_heads))
    if precision in EIGHT_BITS:
        layers_by_name = dict(model.named_modules())
        ranges = {layers_by_name[name]: known for name, known in observed.activations.items()}
        modules = [quantized(module, variant, ranges) for module in modules]
    elif precision == "fp16":
        modules = [deepcopy(module).half() for module in modules]
    encoder, decoder, *aligned = modules
    dtype = torch.float16 if precision == "fp16" else torch.float32
    states = _transformer_states(model.config, attention.element)
    return Graphs(encoder, decoder, states, dtype, aligned[0] if aligned else None)


def _quantized_attention(model: Transformer, observed: Observed) -> QuantizedAttention:
    layers = [
        CacheScales(*(cache_scale(observed.caches[name]) for name in cached_layers(layer)))
        for layer in range(model.config.decoder_layers)
    ]
    return QuantizedAttention(model.config.heads, layers)


def _transformer_states(config: TransformerConfig, element: Element) -> tuple[StateSpec, ...]:
    """Returns the keys and values of every decoder layer, in the order that `DecoderGraph` takes them."""
    return tuple(
        StateSpec(name=f"{attention}_{part}_{layer}", shape=(config.heads, length, config.head_size), element=element)
        for layer in range(config.decoder_layers)
        for attention, length in (("self", "target"), ("cross", "source"))
        for part in ("key", "value")
    )
