"""A Transformer as NumPy arrays: what an import yields and what a graph needs. Imports no torch."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragoman.model.config import Distances, TransformerConfig

# The tables of a self-attention that depends on distances.
DISTANCE_TABLES: Mapping[Distances, tuple[str, ...]] = {"none": (), "bias": ("bias",), "vectors": ("keys", "values")}
# The bias of a token that a model never writes, in training: averages of infinite parameters are no numbers.
FORBIDDEN = float(np.finfo(np.float32).min)
Parameters = Mapping[str, NDArray[np.float32]]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TransformerWeights:
    """The parameters of a Transformer, named as in the network; also tables of positions that are computed."""

    config: TransformerConfig
    vocabulary_size: int
    pad_id: int
    bos_id: int
    eos_id: int
    parameters: Parameters

    @property
    def limits(self) -> TransformerConfig:
        """The longest sequences."""
        return self.config

    @property
    def embedding_scale(self) -> float:
        """Factor of the embeddings."""
        return math.sqrt(self.config.d_model) if self.config.scale_embeddings else 1.0

    @property
    def source_embedding(self) -> NDArray[np.float32]:
        """The embeddings of source tokens, [V, d_model]."""
        return self.parameters["embedding.weight"]

    @property
    def target_embedding(self) -> NDArray[np.float32]:
        """The embeddings of target tokens, [V, d_model]."""
        return self.parameters["embedding.weight" if self.config.tie_embeddings else "target_embedding.weight"]

    @property
    def output(self) -> NDArray[np.float32]:
        """The matrix that maps states to logits, [V, d_model]."""
        return self.parameters["embedding.weight" if self.config.tie_embeddings else "output.weight"]


def position_count(config: TransformerConfig) -> int:
    """Returns the number of positions of the longer side; BOS takes one target position."""
    return max(config.max_source_tokens, config.max_target_tokens + 1)


def parameter_shapes(config: TransformerConfig, vocabulary_size: int) -> dict[str, Shape]:
    """Returns the shape of every parameter, with tables of positions."""
    width, table = config.d_model, (vocabulary_size, config.d_model)
    positions = (position_count(config), width)
    shapes: dict[str, Shape] = {"embedding.weight": table}
    if not config.tie_embeddings:
        shapes |= {"target_embedding.weight": table, "output.weight": table}
    if config.output_bias:
        shapes["output_bias"] = (vocabulary_size,)
    for side in ("source", "target") if config.norm_embeddings else ():
        shapes |= dict(_norm_shapes(config, f"{side}_embedding_norm"))
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for number in range(layers):
            shapes |= dict(_layer_shapes(config, f"{side}.{number}", decoder=side == "decoder"))
        if config.norm_position == "pre":
            shapes |= dict(_norm_shapes(config, f"{side}_norm"))
    return shapes | {"source_positions.table": positions, "target_positions.table": positions}


def _layer_shapes(config: TransformerConfig, name: str, *, decoder: bool) -> Iterator[tuple[str, Shape]]:
    width, inner = config.d_model, config.d_ff
    if decoder and config.decoder_memory == "ssru":
        yield from _ssru_shapes(config, f"{name}.ssru")
    else:
        yield from _attention_shapes(config, f"{name}.self_attention")
        yield from _distance_shapes(config, f"{name}.self_attention")
    if decoder:
        yield from _attention_shapes(config, f"{name}.cross_attention")
    gated = config.gated
    for part, (outputs, inputs) in {"gate": (inner, width), "inner": (inner, width), "outer": (width, inner)}.items():
        if part == "gate" and not gated:
            continue
        yield f"{name}.feed_forward.{part}.weight", (outputs, inputs)
        if not gated:
            yield f"{name}.feed_forward.{part}.bias", (outputs,)
    yield from _norm_shapes(config, f"{name}.feed_forward_residual.norm")


def _attention_shapes(config: TransformerConfig, name: str) -> Iterator[tuple[str, Shape]]:
    width, heads = config.d_model, config.attention_width
    for part in ("query", "key", "value"):
        yield f"{name}.{part}.weight", (heads, width)
        yield f"{name}.{part}.bias", (heads,)
    yield f"{name}.output.weight", (width, heads)
    yield f"{name}.output.bias", (width,)
    yield from _norm_shapes(config, f"{name}_residual.norm")


def _ssru_shapes(config: TransformerConfig, name: str) -> Iterator[tuple[str, Shape]]:
    for part in ("input", "forget"):
        yield f"{name}.{part}.weight", (config.d_model, config.d_model)
        yield f"{name}.{part}.bias", (config.d_model,)
    yield from _norm_shapes(config, f"{name}_residual.norm")


def _distance_shapes(config: TransformerConfig, name: str) -> Iterator[tuple[str, Shape]]:
    """Yields the tables of a self-attention: a row per distance, key minus query, the smallest distance first."""
    rows = 2 * position_count(config) - 1
    width = {"none": 0, "bias": config.heads, "vectors": config.head_size}[config.distances]
    for part in DISTANCE_TABLES[config.distances]:
        yield f"{name}.distances.{part}", (rows, width)


def _norm_shapes(config: TransformerConfig, name: str) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (config.d_model,)
    if config.norm == "layer":
        yield f"{name}.bias", (config.d_model,)
