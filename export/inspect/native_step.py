"""Describes native graphs like graphs with states: the caches of each layer, and the blocks of a decoder step.

A step is one operator. Its blocks follow from the names of its weights.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import onnx

from dragoman.export.inspect.graph import StoredGraph, Weight
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.manifest import CacheSpec, Length, Manifest, StateSpec

# Parts of a decoder layer in the names of weights, and their titles.
LAYER_PARTS = {
    "self_attention": "self-attention",
    "ssru": "recurrent unit",
    "cross_attention": "cross-attention",
    "feed_forward": "feed-forward",
}
CACHES: dict[str, Length] = {"self_attention": "target", "ssru": "target", "cross_attention": "source"}
LENGTHS: tuple[Length, Length] = ("target", "source")


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a decoder step that runs `times` times, once per layer.

    All layers together read the states and the matrices (weights with at least two axes) and write the states.
    """

    title: str
    times: int
    matrices: tuple[Weight, ...]
    reads: tuple[StateSpec, ...]
    writes: tuple[StateSpec, ...]


def described_states(manifest: Manifest) -> tuple[StateSpec, ...]:
    """Returns the states of a bundle; a native cache is one state per layer and tensor."""
    cache = manifest.cache
    if cache is None:
        return manifest.states
    return tuple(
        state for layer in range(cache.layers) for length in LENGTHS for state in _layer_states(cache, length, layer)
    )


def _layer_states(cache: CacheSpec, length: Length, layer: int) -> Iterator[StateSpec]:
    if cache.recurrent and length == "target":
        yield StateSpec(name=f"target_cache_{layer}", shape=(cache.heads * cache.head_size,))
        return
    shape = (2, cache.heads, length)  # keys and values
    yield StateSpec(name=f"{length}_cache_{layer}", shape=(*shape, cache.head_size), element=cache.element)
    if cache.element == "int8":
        yield StateSpec(name=f"{length}_scales_{layer}", shape=shape)


def native_blocks(bundle: Bundle, graph: StoredGraph, cache: CacheSpec) -> tuple[Block, ...]:
    """Returns the blocks of the decoder, in order of computation."""
    weights = _named_weights(bundle, graph)
    layers = [
        _layer_block(part, cache, matrices)
        for part in LAYER_PARTS
        if (matrices := _matrices(weights, rf"decoder\.\d+\.{part}\b"))
    ]
    embedding = Block("embedding", 1, _matrices(weights, "target_"), (), ())
    return (embedding, *layers, Block("projection", 1, _matrices(weights, r"output\."), (), ()))


def _layer_block(part: str, cache: CacheSpec, matrices: tuple[Weight, ...]) -> Block:
    length, numbers = CACHES.get(part), range(cache.layers)
    reads = () if length is None else tuple(state for layer in numbers for state in _layer_states(cache, length, layer))
    return Block(LAYER_PARTS[part], cache.layers, matrices, reads, reads if length == "target" else ())


def _matrices(weights: Iterable[tuple[str, Weight]], pattern: str) -> tuple[Weight, ...]:
    return tuple(weight for name, weight in weights if re.match(pattern, name) and len(weight.shape) > 1)


def _named_weights(bundle: Bundle, graph: StoredGraph) -> list[tuple[str, Weight]]:
    """Returns the weights by their names in the operator's function: equal ones are stored under one name."""
    model = onnx.load(bundle.decoder_path, load_external_data=False)
    (function,), (node,) = model.functions, model.graph.node
    pairs = zip(function.input, filter(None, node.input), strict=True)
    return [(name, graph.weights[given]) for name, given in pairs if given in graph.weights]
