"""The native graphs of a Transformer. Each is one node with an operator of Dragoman; its function is the fallback.

Operators of models that the library does not compute have a domain of their own: ONNX Runtime takes the function.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from dragoman.export.graphs.graph_files import ExportedGraphs, WeightFile, save_graphs
from dragoman.export.graphs.native.body import Body
from dragoman.export.graphs.native.choose import choose_body
from dragoman.export.graphs.native.encode import encode_body
from dragoman.export.graphs.native.layout import LANES, rounded_up
from dragoman.export.graphs.native.step import step_body
from dragoman.export.graphs.native.weights import Weights, WrittenWeights, decoder_weights, encoder_weights
from dragoman.export.graphs.weightless import IR_VERSION
from dragoman.model.weights import TransformerWeights
from dragoman.serve.bundle.bundle import CHOOSE_FILE, DECODER_FILE, ENCODER_FILE
from dragoman.serve.bundle.manifest import (
    ALIGNMENTS,
    CANDIDATE_INPUTS,
    CHOICE,
    ENCODE_INPUTS,
    LOGITS,
    STEP_INPUTS,
    AttentionHead,
    CacheSpec,
    Length,
    Precision,
    present,
)

OPSET = 24
DOMAIN, DOMAIN_VERSION = "dragoman", 1
# Operators that are functions of standard operators alone; the library registers none of this domain.
STANDARD_DOMAIN = "dragoman.standard"
FLOAT, INT8, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT8, TensorProto.INT32, TensorProto.INT64
# All vectors of a type as one weight, by its name.
VECTORS = {"integer_vectors": "int32", "float_vectors": "float32"}
# Inputs that are not int32.
INT64_INPUTS = ("source_ids", "token_ids")
# Names or sizes of the only axis of an input where it is none of a source or of a row.
AXES: dict[str, str | int] = {"source_ids": "tokens", "scored_rows": "scored", "best_count": 1, "aligned": 1}


def cache_of(model: TransformerWeights, precision: Precision) -> CacheSpec:
    """Returns the cache of a model."""
    config = model.config
    return CacheSpec(
        layers=config.decoder_layers,
        heads=config.heads,
        head_size=config.head_size,
        element="float" if precision == "fp32" else "int8",
        recurrent=config.decoder_memory == "ssru",
    )


class NativeExport:
    """Writes the native graphs of a model in one precision: first the weights, one at a time, then the graphs."""

    def __init__(self, model: TransformerWeights, precision: Precision, folder: Path) -> None:
        """Writes the weights into a folder."""
        self._model = model
        self._precision = precision
        self._folder = folder
        self._cache = cache_of(model, precision)
        self._file = WeightFile(folder)
        self._encoder = encoder_weights(model, precision, self._file)
        self._decoder = decoder_weights(model, precision, self._file)

    def write(self, heads: Sequence[AttentionHead], *, shortlists: bool = False) -> ExportedGraphs:
        """Writes the graphs, also again; the decoder returns alignments of the given heads, and may take shortlists."""
        graphs = {
            ENCODER_FILE: self._encoder_graph(),
            DECODER_FILE: self._decoder_graph(heads, shortlists=shortlists),
            CHOOSE_FILE: choose_graph(),
        }
        return save_graphs(graphs, self._folder, cache=self._cache)

    def _encoder_graph(self) -> onnx.ModelProto:
        model = self._model
        attributes = _attributes(model, self._precision) | {"layers": model.config.encoder_layers}
        operator = self._operator("Encode", encode_body(model, self._cache), self._encoder, attributes)
        sources = _caches(self._cache, "source", model.config.max_source_tokens)
        return operator.graph([*_inputs(ENCODE_INPUTS, "sources"), *sources], _presents(sources))

    def _decoder_graph(self, heads: Sequence[AttentionHead], *, shortlists: bool) -> onnx.ModelProto:
        model, config, cache = self._model, self._model.config, self._cache
        attributes = _attributes(model, self._precision) | {
            "layers": config.decoder_layers,
            "vocabulary": model.vocabulary_size,
            "alignment_heads": [number for head in heads for number in (head.layer, head.head)],
        }
        if cache.recurrent:
            attributes["recurrent"] = 1
        if shortlists:
            attributes["shortlists"] = 1
        body = step_body(model, cache, heads, shortlists=shortlists)
        operator = self._operator("Step", body, self._decoder, attributes)
        targets = _caches(cache, "target", config.max_target_tokens)
        sources = _caches(cache, "source", config.max_source_tokens)
        outputs = [
            _value(LOGITS, FLOAT, "scored", model.vocabulary_size),
            *_choice("rows"),
            _value(ALIGNMENTS, FLOAT, "aligned_rows", len(heads), rounded_up(config.max_source_tokens, LANES)),
            *_presents(targets),
        ]
        ids, ranges = CANDIDATE_INPUTS
        lists = [_value(ids, INT32, "candidates"), _value(ranges, INT32, "listed_rows", 2)] if shortlists else []
        return operator.graph([*_inputs(STEP_INPUTS, "rows"), *lists, *targets, *sources], outputs)

    def _operator(self, name: str, body: Body, weights: WrittenWeights, attributes: Mapping[str, object]) -> "Operator":
        """Returns an operator of the library, or a function alone, which needs no attributes; writes its vectors."""
        domain = DOMAIN
        if self._model.config.needs_standard_graphs:
            domain, attributes = STANDARD_DOMAIN, {}
        else:
            body, weights = _packed(body, weights)
            attributes = {**attributes, "packed_vectors": 1}
        tensors = {
            item: weight if isinstance(weight, TensorProto) else self._file.write_whole(item, weight)
            for item, weight in weights.items()
        }
        return Operator(name, body, tensors, attributes, domain)


def choose_graph() -> onnx.ModelProto:
    """Returns the graph of `Choose`, which has no weights and fits every model."""
    inputs = [_value(LOGITS, FLOAT, "rows", "vocabulary"), _value("best_count", INT32, 1)]
    return Operator("Choose", choose_body(), {}, {}).graph(inputs, _choice("rows"))


class Operator(NamedTuple):
    """An operator of Dragoman: its fallback body, its weights in the order of its last inputs, and its attributes."""

    name: str
    body: Body
    weights: Mapping[str, TensorProto]
    attributes: Mapping[str, object]
    domain: str = DOMAIN

    def graph(self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto]) -> onnx.ModelProto:
        """Returns a graph of this one node; equal weights are one tensor."""
        dynamic, results = [value.name for value in inputs], [value.name for value in outputs]
        stored: dict[bytes, TensorProto] = {}
        given = [*dynamic, *(stored.setdefault(_identity(weight), weight).name for weight in self.weights.values())]
        node = helper.make_node(self.name, given, results, domain=self.domain, name=self.name)
        node.attribute.extend(_attribute(name, value) for name, value in self.attributes.items())
        standard, own = helper.make_opsetid("", OPSET), helper.make_opsetid(self.domain, DOMAIN_VERSION)
        names = [*dynamic, *self.weights]
        function = helper.make_function(
            self.domain, self.name, names, results, self.body.nodes, [standard], list(self.attributes)
        )
        graph = helper.make_graph([node], self.name.lower(), inputs, outputs, list(stored.values()))
        return helper.make_model(graph, functions=[function], opset_imports=[standard, own], ir_version=IR_VERSION)


def _is_vector(weight: NDArray[Any] | TensorProto, kind: str) -> TypeGuard[NDArray[Any]]:
    return isinstance(weight, np.ndarray) and weight.ndim == 1 and weight.dtype == kind


def _identity(tensor: onnx.TensorProto) -> bytes:
    """Returns what equal weights have in common: type, shape, and offset in the file or content."""
    nameless = TensorProto()
    nameless.CopyFrom(tensor)
    nameless.ClearField("name")
    content: bytes = nameless.SerializeToString()
    return content


def _attribute(name: str, value: object) -> onnx.AttributeProto:
    kind = onnx.AttributeProto.INTS if isinstance(value, list) else None  # a list may be empty
    return helper.make_attribute(name, value, attr_type=kind)


def read_native(path: Path) -> Weights:
    """Returns the weights of a native graph by name, in the layout of the kernels.

    Raises:
        onnx.checker.ValidationError, google.protobuf.message.DecodeError, OSError, ValueError: if the file is not such
            a graph.
    """
    model = onnx.load(path)
    (node,), (function,) = model.graph.node, model.functions
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    weights = {
        name: numpy_helper.to_array(stored[given])
        for name, given in zip(function.input, node.input, strict=True)
        if given in stored
    }
    for name in VECTORS.keys() & weights.keys():
        (split,) = (
            operation for operation in function.node if operation.op_type == "Split" and operation.input[0] == name
        )
        (lengths,) = (operation for operation in function.node if split.input[1] in operation.output)
        ends = np.cumsum(numpy_helper.to_array(lengths.attribute[0].t))
        weights |= zip(split.output, np.split(weights.pop(name), ends[:-1]), strict=True)
    return weights


def _packed(body: Body, weights: WrittenWeights) -> tuple[Body, WrittenWeights]:
    """Returns a body that splits its vectors, and weights with all vectors of a type as one, before the others.

    ONNX Runtime touches every weight in every run.
    """
    packed = Body()
    for name, kind in VECTORS.items():
        vectors = {item: weight for item, weight in weights.items() if _is_vector(weight, kind)}
        if vectors:
            lengths = np.array([*map(len, vectors.values())])
            sizes = packed.add("Constant", into=f"{name}_lengths", value=numpy_helper.from_array(lengths))
            packed.nodes.append(helper.make_node("Split", [name, sizes], list(vectors), axis=0))
            others = {item: weight for item, weight in weights.items() if item not in vectors}
            weights = {name: np.concatenate(list(vectors.values())), **others}
    packed.nodes.extend(body.nodes)
    return packed, weights


def _attributes(model: TransformerWeights, precision: Precision) -> dict[str, object]:
    config = model.config
    # Earlier libraries do not know the attribute.
    added = {"embedding_norm": 1} if config.norm_embeddings else {}
    return added | {
        "decoder_layers": config.decoder_layers,
        "heads": config.heads,
        "d_model": config.d_model,
        "d_ff": config.d_ff,
        "norm": config.norm,
        "pre_norm": int(config.norm_position == "pre"),
        "activation": config.activation,
        "precision": precision,
        "embedding_scale": float(model.embedding_scale),
        "epsilon": config.norm_epsilon,
    }


def _inputs(names: Iterable[str], axis: str) -> list[onnx.ValueInfoProto]:
    return [_value(name, INT64 if name in INT64_INPUTS else INT32, AXES.get(name, axis)) for name in names]


def _caches(cache: CacheSpec, length: Length, tokens: int) -> list[onnx.ValueInfoProto]:
    return [
        _value(name, INT8 if tensor.element == "int8" else FLOAT, f"{length}_slots", *tensor.shape)
        for name, tensor in cache.tensors(length, tokens).items()
    ]


def _choice(rows: str) -> list[onnx.ValueInfoProto]:
    log_sums, best_scores, best_ids = CHOICE
    return [
        _value(log_sums, FLOAT, rows),
        _value(best_scores, FLOAT, rows, "count"),
        _value(best_ids, INT64, rows, "count"),
    ]


def _presents(caches: Iterable[onnx.ValueInfoProto]) -> list[onnx.ValueInfoProto]:
    return [helper.make_value_info(present(cache.name), cache.type) for cache in caches]


def _value(name: str, kind: int, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)
