"""Reads the layers of a CTranslate2 model: attention with any heads, feed-forward networks, normalizations.

Each variable is removed as it is read; the importer rejects those that remain.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import count, takewhile
from pathlib import Path
from typing import TypeVar

import numpy as np

from dragoman.export.imports.common import Array, ImportedModelError, Parameter, Tensors
from dragoman.export.imports.distances import bias_per_distance, vectors_per_distance
from dragoman.export.imports.stored import StoredArray
from dragoman.model.config import Distances, InnerActivation, TransformerConfig
from dragoman.model.imported_config import attention_fields
from dragoman.tables import read_table

ACTIVATIONS: dict[int, InnerActivation] = {0: "relu", 1: "gelu_tanh", 2: "silu", 3: "gelu"}
ACTIVATION_NAMES = ("ReLU", "GELU by tanh", "Swish", "GELU", "GELU by sigmoid", "tanh", "sigmoid")
IGNORED: list[str] = read_table(__file__, "ctranslate2.yaml")["ignored options"]
REFUSED = ("alibi",)
# The parts that each projection of an attention has.
SELF, CROSS = (("query", "key", "value"),), (("query",), ("key", "value"))
Value = TypeVar("Value")


class Variables:
    """The variables of a model: numbers, whether they are flags, and tensors."""

    def __init__(self, path: Path, scalars: dict[str, float], flags: AbstractSet[str], tensors: Tensors) -> None:
        self.path = path
        self.tensors = tensors
        self._scalars = scalars
        self._flags = flags

    def has(self, name: str) -> bool:
        """Returns whether there is such a number."""
        return name in self._scalars

    def is_flag(self, name: str) -> bool:
        """Returns whether a number is a flag."""
        return name in self._flags

    def number(self, name: str, usual: float | None = None) -> float:
        """Takes a number; raises ImportedModelError if it is missing and `usual` is None."""
        found = self._scalars.pop(name, usual)
        if found is None:
            raise ImportedModelError(f"{self.path}: {name}: missing tensor")
        return found

    def refusal(self, name: str, value: object, expected: object) -> ImportedModelError:
        """Returns the error for a value that is not supported."""
        return ImportedModelError(f"{self.path}: {name}: {value}: expected {expected}")

    def check_left(self) -> None:
        """Rejects unknown options that are set."""
        for name, value in sorted(self._scalars.items()):
            option = name.rpartition("/")[2]
            if option in REFUSED and not value:
                continue
            if option not in IGNORED:
                raise self.refusal(name, f"{value:g}", "no such option: it is not supported")


def read_shape(variables: Variables, d_model: int) -> dict[str, object]:
    """Returns the fields of a `TransformerConfig` or `ImportedConfig` that both stacks share, and their layers.

    Raises ImportedModelError if an option is not supported or the stacks differ.
    """
    tensors = variables.tensors
    heads = _shared("heads", variables, lambda given, stack: int(given.number(f"{stack}/num_heads")))
    first = "encoder/layer_0/self_attention"
    columns = tensors.columns(f"{first}/linear_1/weight")
    if heads < 1 or columns % heads:
        raise variables.refusal("encoder/num_heads", heads, f"a divisor of {columns}")
    layers = {f"{stack}_layers": _layers(tensors, stack) for stack in ("encoder", "decoder")}
    if not all(layers.values()):
        raise variables.refusal("encoder and decoder", "no layers", "at least one each")
    activation = _shared("activation", variables, _activation), tensors.has("encoder/layer_0/ffn/linear_0_noact/weight")
    return {
        **attention_fields(d_model, heads, columns // heads, activation, _distances(tensors, first)),
        **layers,
        "d_ff": tensors.columns("encoder/layer_0/ffn/linear_1/weight"),
        "norm": "layer" if tensors.has(f"{first}/layer_norm/beta") else "rms",
        "norm_position": _shared("norm_position", variables, _norm_position),
        "norm_embeddings": tensors.has("encoder/layernorm_embedding/gamma"),
        "positions": "learned",
        "scale_embeddings": _shared("scale_embeddings", variables, lambda given, stack: _scaled(given, stack, d_model)),
    }


def _shared(name: str, variables: Variables, read: Callable[[Variables, str], Value]) -> Value:
    encoder, decoder = read(variables, "encoder"), read(variables, "decoder")
    if encoder != decoder:
        raise variables.refusal(f"decoder: {name}", decoder, f"{encoder} as in the encoder")
    return encoder


def _norm_position(variables: Variables, stack: str) -> str:
    return "pre" if variables.number(f"{stack}/pre_norm", 1.0) else "post"


def _activation(variables: Variables, stack: str) -> InnerActivation:
    name = f"{stack}/activation"
    number = int(variables.number(name, 0.0))
    if number not in ACTIVATIONS:
        value = ACTIVATION_NAMES[number] if 0 <= number < len(ACTIVATION_NAMES) else number
        raise variables.refusal(name, value, ", ".join(ACTIVATION_NAMES[known] for known in ACTIVATIONS))
    return ACTIVATIONS[number]


def _scaled(variables: Variables, stack: str, d_model: int) -> bool:
    """Returns True if embeddings are multiplied by sqrt(d_model): stored as a flag, as the factor, or implied."""
    newer, older = f"{stack}/scale_embeddings", f"{stack}/embeddings/multiply_by_sqrt_depth"
    name = newer if variables.has(newer) else older
    if not variables.has(name):
        return True
    factor = variables.number(name)
    if variables.is_flag(name):
        return bool(factor)
    if not math.isclose(factor, math.sqrt(d_model), rel_tol=1e-6) and factor != 1:
        raise variables.refusal(name, factor, f"1 or {math.sqrt(d_model)}")
    return factor != 1


def _distances(tensors: Tensors, attention: str) -> Distances:
    if tensors.has(f"{attention}/relative_attention_bias"):
        return "bias"
    return "vectors" if tensors.has(f"{attention}/relative_position_keys") else "none"


def _layers(tensors: Tensors, stack: str) -> int:
    names = (f"{stack}/layer_{number}/self_attention/linear_0/weight" for number in count())
    return sum(1 for _ in takewhile(tensors.has, names))


def read_stack(
    variables: Variables, stack: str, shape: TransformerConfig, positions: int
) -> Iterator[tuple[str, Parameter]]:
    """Yields the parameters of a stack by Dragoman's names; `positions` is the size of tables of distances."""
    layers = _LayerReader(variables, shape, positions)
    for number in range(shape.encoder_layers if stack == "encoder" else shape.decoder_layers):
        ours, theirs = f"{stack}.{number}", f"{stack}/layer_{number}"
        yield from layers.attention(f"{ours}.self_attention", f"{theirs}/self_attention", SELF)
        yield from layers.tables(f"{ours}.self_attention", f"{theirs}/self_attention")
        if stack == "decoder":
            yield from layers.attention(f"{ours}.cross_attention", f"{theirs}/attention", CROSS)
        yield from layers.feed_forward(f"{ours}.feed_forward", f"{theirs}/ffn")
    if shape.norm_position == "pre":
        yield from layers.norm(f"{stack}_norm", f"{stack}/layer_norm")
    if shape.norm_embeddings:
        side = {"encoder": "source", "decoder": "target"}[stack]
        yield from layers.norm(f"{side}_embedding_norm", f"{stack}/layernorm_embedding")


class _LayerReader:
    """Reads the parts of a layer; parameters are pairs of a name and an array."""

    def __init__(self, variables: Variables, shape: TransformerConfig, positions: int) -> None:
        self._variables = variables
        self._tensors = variables.tensors
        self._shape = shape
        self._positions = positions

    def attention(self, ours: str, theirs: str, packed: Sequence[Sequence[str]]) -> Iterator[tuple[str, Parameter]]:
        """Yields the weights of an attention; each projection but the last has the `packed` parts."""
        key_heads = self._key_heads(theirs)
        heads = {"query": self._shape.heads, "key": key_heads, "value": key_heads}
        for number, parts in enumerate(packed):
            yield from self._split(ours, theirs, f"linear_{number}", {part: heads[part] for part in parts})
        yield from self._linear(f"{ours}.output", f"{theirs}/linear_{len(packed)}")
        yield from self.norm(f"{ours}_residual.norm", f"{theirs}/layer_norm")

    def feed_forward(self, ours: str, theirs: str) -> Iterator[tuple[str, Parameter]]:
        """Yields a feed-forward network; gated ones have no biases."""
        gated = self._shape.gated
        names = {"gate": "linear_0", "inner": "linear_0_noact"} if gated else {"inner": "linear_0"}
        for part, name in {**names, "outer": "linear_1"}.items():
            yield from self._linear(f"{ours}.{part}", f"{theirs}/{name}", biased=not gated)
        yield from self.norm(f"{ours}_residual.norm", f"{theirs}/layer_norm")

    def norm(self, ours: str, theirs: str) -> Iterator[tuple[str, Parameter]]:
        """Yields a normalization."""
        yield f"{ours}.weight", self._tensors.take(f"{theirs}/gamma")
        if self._shape.norm == "layer":
            yield f"{ours}.bias", self._tensors.take(f"{theirs}/beta")

    def _key_heads(self, attention: str) -> int:
        """Returns the number of heads that keys and values have; several query heads may share one."""
        variables, heads = self._variables, self._shape.heads
        usual = 1 if variables.number(f"{attention}/multi_query", 0.0) else heads
        name = f"{attention}/num_heads_kv"
        found = int(variables.number(name, usual))
        if found < 1 or heads % found:
            raise variables.refusal(name, found, f"a divisor of {heads}")
        return found

    def _split(
        self, ours: str, attention: str, layer: str, groups: Mapping[str, int]
    ) -> Iterator[tuple[str, Parameter]]:
        """Splits a packed projection into parts of as many heads each; repeats heads that several queries share."""
        packed = dict(self._linear("", f"{attention}/{layer}"))
        size, shape = self._shape.head_size, packed[".weight"].shape
        rows = size * sum(groups.values())
        if shape[0] != rows:
            raise self._variables.refusal(f"{attention}/{layer}/weight", f"shape is {shape}", f"{rows} rows")
        factor = np.float32(self._query_factor(attention) if "query" in groups else 1.0)
        wanted, first = self._shape.heads, 0
        for part, heads in groups.items():
            change = partial(
                _part_of,
                rows=slice(first, first + size * heads),
                heads=heads,
                wanted=wanted,
                factor=factor if part == "query" else np.float32(1),
            )
            first += size * heads
            for kind, value in packed.items():
                yield f"{ours}.{part}{kind}", value.then((size * wanted, *value.shape[1:]), change)

    def _query_factor(self, attention: str) -> float:
        """Returns the factor of queries that makes the usual scale of scores, 1 / sqrt(D), that of the model."""
        size = int(self._variables.number(f"{attention}/head_dim", self._shape.d_model // self._shape.heads))
        scale = self._variables.number(f"{attention}/queries_scale", 1 / math.sqrt(max(1, size)))
        factor = scale * math.sqrt(self._shape.head_size)
        return 1.0 if math.isclose(factor, 1, rel_tol=1e-6) else factor

    def tables(self, ours: str, theirs: str) -> Iterator[tuple[str, Parameter]]:
        """Yields the tables of relative positions, with a row per distance."""
        if self._shape.distances == "bias":
            table = self._tensors.take_matrix(f"{theirs}/relative_attention_bias").read()
            farthest = int(self._variables.number(f"{theirs}/relative_attention_max_distance"))
            rows = bias_per_distance(table, self._positions, farthest, bidirectional=theirs.startswith("encoder"))
            yield f"{ours}.distances.bias", rows
        elif self._shape.distances == "vectors":
            for part in ("keys", "values"):
                table = self._tensors.take_matrix(f"{theirs}/relative_position_{part}").read()
                yield f"{ours}.distances.{part}", vectors_per_distance(table, self._positions)

    def _linear(self, ours: str, theirs: str, *, biased: bool = True) -> Iterator[tuple[str, StoredArray]]:
        weight = self._tensors.take_matrix(f"{theirs}/weight")
        yield f"{ours}.weight", weight
        if biased:
            name, rows = f"{theirs}/bias", len(weight)
            has_bias = self._tensors.has(name)
            yield (
                f"{ours}.bias",
                self._tensors.take(name, (rows,)) if has_bias else StoredArray.of(np.zeros(rows, np.float32)),
            )


def _part_of(packed: Array, rows: slice, heads: int, wanted: int, factor: np.float32) -> Array:
    """Returns some rows of a packed projection, with heads repeated and multiplied by a factor."""
    chosen = packed[rows]
    if heads < wanted:
        by_head = chosen.reshape(heads, -1, *packed.shape[1:])
        chosen = np.repeat(by_head, wanted // heads, axis=0).reshape(-1, *packed.shape[1:])
    return chosen if factor == 1 else chosen * factor
