"""CTranslate2 specifications of every shape that its converters write, with random weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec

from benchmarks.systems.ctranslate2_system import CONFIG

WIDTH, HEADS, INNER, LAYERS = 64, 4, 96, 2
BUCKETS, MAX_DISTANCE, FARTHEST = 8, 12, 3
OPTIONAL = "__optional"
# Standard deviations of random values by a part of the name.
SPREADS = {"gamma": 1.0, "beta": 0.1, "bias": 0.1, "embeddings": 1.0, "relative_attention_bias": 1.0}


def random_spec(pieces: Sequence[str], seed: int = 5, **options: Any) -> TransformerSpec:
    """Returns a specification with the options of both stacks, whose output depends on the whole source.

    `head_dim` and `num_heads_kv` change the shapes; other options are those of the library.
    """
    spec = TransformerSpec(
        TransformerEncoderSpec(LAYERS, HEADS, **options), TransformerDecoderSpec(LAYERS, HEADS, **options)
    )
    shapes = _shapes(len(pieces), options.get("head_dim") or WIDTH // HEADS, options.get("num_heads_kv") or HEADS)
    gated, random = options.get("ffn_glu", False), np.random.default_rng(seed)

    def fill(scope: Any, name: str, value: object) -> None:
        last = name.rpartition("/")[2]
        biased = last == "bias" and value == OPTIONAL and not (gated and "/ffn/" in name)
        if value is None or (biased and "projection" not in name):
            setattr(scope, last, _random(random, name, _shape(shapes, name)))

    spec._visit(fill)
    for stack in (spec.encoder, spec.decoder):
        stack.scale_embeddings = False
    for name, found in {**CONFIG, "add_source_eos": True}.items():
        setattr(spec.config, name, found)
    spec.register_source_vocabulary(list(pieces))
    spec.register_target_vocabulary(list(pieces))
    return spec


def _shapes(vocabulary: int, head_size: int, key_heads: int) -> Mapping[str, tuple[int, ...]]:
    """Returns the shapes of variables by the end of their names."""
    heads, keys = HEADS * head_size, key_heads * head_size
    return {
        "embeddings_0/weight": (vocabulary, WIDTH),
        "embeddings/weight": (vocabulary, WIDTH),
        "projection/weight": (vocabulary, WIDTH),
        "self_attention/linear_0/weight": (heads + 2 * keys, WIDTH),
        "self_attention/linear_1/weight": (WIDTH, heads),
        "attention/linear_0/weight": (heads, WIDTH),
        "attention/linear_1/weight": (2 * keys, WIDTH),
        "attention/linear_2/weight": (WIDTH, heads),
        "ffn/linear_0/weight": (INNER, WIDTH),
        "ffn/linear_0_noact/weight": (INNER, WIDTH),
        "ffn/linear_1/weight": (WIDTH, INNER),
        "gamma": (WIDTH,),
        "beta": (WIDTH,),
        "relative_position_keys": (2 * FARTHEST + 1, head_size),
        "relative_position_values": (2 * FARTHEST + 1, head_size),
        "relative_attention_bias": (BUCKETS, HEADS),
        "relative_attention_max_distance": (),
    }


def _shape(shapes: Mapping[str, tuple[int, ...]], name: str) -> tuple[int, ...]:
    if name.endswith("/bias"):
        return _shape(shapes, f"{name.removesuffix('bias')}weight")[:1]
    return next(shape for end, shape in shapes.items() if name.endswith(end))


def _random(random: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any] | np.generic:
    if name.endswith("relative_attention_max_distance"):
        return np.int32(MAX_DISTANCE)
    spread = next((item for end, item in SPREADS.items() if end in name), 0.25)
    return random.normal(0, spread, shape).astype(np.float32)
