"""Graphs with states for GPUs: an encoder, a decoder step and the tensors between them.

`dragoman.export.graphs.native` has the graphs for CPUs.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import nn

from dragoman.export.graphs.options import check_options
from dragoman.export.graphs.transformer import DecoderGraph, EncoderGraph
from dragoman.model.config import TransformerConfig
from dragoman.model.network.transformer import Transformer
from dragoman.model.network.translation_model import TranslationModel
from dragoman.serve.bundle.manifest import AttentionHead, GraphVariant, Precision, StateSpec


@dataclass(frozen=True, slots=True)
class Graphs:
    """The two PyTorch modules of a model, with the signatures of its ONNX graphs. B, R rows, S source length.

    Attributes:
        encoder: maps source_ids, int64 [B, S], and source_lengths, int32 [B], to the source states, in the order
            of `states`, each [B, *shape] with S for "source".
        decoder: maps token_ids, int64 [R], positions, int32 [R], source_lengths, int32 [R], and all states, [R,
            *shape], to logits, float [R, V], followed by the next target states, in the order of `states`.
        states: decoder states.
        dtype: of float states.
        aligned_decoder: `decoder` with one more output: cross-attention weights of the alignment heads, float [R, A, C]
            with C the capacity of the source states.
    """

    encoder: nn.Module
    decoder: nn.Module
    states: tuple[StateSpec, ...]
    dtype: torch.dtype = torch.float32
    aligned_decoder: nn.Module | None = None


def graphs_of(
    model: TranslationModel, variant: GraphVariant, precision: Precision, alignment_heads: Sequence[AttentionHead] = ()
) -> Graphs:
    """Returns the graphs of a trained Transformer, which share its parameters.

    Without alignment heads there is no aligned decoder. Raises UnsupportedGraphError if it has no such graphs.
    """
    if not isinstance(model, Transformer):
        raise TypeError(f"{type(model).__name__}: expected a Transformer")
    check_options(model.config, variant, precision, alignment_heads)
    return _transformer_graphs(model, precision, alignment_heads)


def _transformer_graphs(model: Transformer, precision: Precision, alignment_heads: Sequence[AttentionHead]) -> Graphs:
    if precision == "fp16":
        model = deepcopy(model).half()
    aligned = DecoderGraph(model, alignment_heads) if alignment_heads else None
    dtype = torch.float16 if precision == "fp16" else torch.float32
    return Graphs(EncoderGraph(model), DecoderGraph(model), _transformer_states(model.config), dtype, aligned)


def _transformer_states(config: TransformerConfig) -> tuple[StateSpec, ...]:
    """Returns the key and value states of every decoder layer, in the input order of `DecoderGraph`."""
    return tuple(
        StateSpec(name=f"{attention}_{part}_{layer}", shape=(config.heads, length, config.head_size))
        for layer in range(config.decoder_layers)
        for attention, length in (("self", "target"), ("cross", "source"))
        for part in ("key", "value")
    )
