"""Describes native graphs like graphs with states: the caches of each layer, and the blocks of a decoder step.

A step is one operator. Its blocks follow from the names of its weights.
"""

from collections.abc import Iterable, Iterator

import onnx

from dragoman.export.inspect.graph import Block, StoredGraph, Weight
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
        Block(title, 0, matrices, *_reads_and_writes(cache, part, layer))
        for layer in range(cache.layers)
        for part, title in LAYER_PARTS.items()
        if (matrices := _matrices(weights, f"decoder.{layer}.{part}"))
    ]
    embedding = Block("embedding", 0, _matrices(weights, "target_"), (), ())
    return (embedding, *layers, Block("projection", 0, _matrices(weights, "output."), (), ()))


def _reads_and_writes(cache: CacheSpec, part: str, layer: int) -> tuple[tuple[StateSpec, ...], tuple[StateSpec, ...]]:
    read = tuple(_layer_states(cache, CACHES[part], layer)) if part in CACHES else ()
    return read, read if CACHES.get(part) == "target" else ()


def _matrices(weights: Iterable[tuple[str, Weight]], prefix: str) -> tuple[Weight, ...]:
    return tuple(weight for name, weight in weights if name.startswith(prefix) and len(weight.shape) > 1)


def _named_weights(bundle: Bundle, graph: StoredGraph) -> list[tuple[str, Weight]]:
    """Returns the weights by their names in the operator's function: equal ones are stored under one name."""
    (function,) = onnx.load(bundle.decoder_path, load_external_data=False).functions
    (node,) = graph.nodes
    pairs = zip(function.input, node.inputs, strict=True)
    return [(name, graph.weights[given]) for name, given in pairs if given in graph.weights]
