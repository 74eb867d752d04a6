"""The variables of a CTranslate2 Transformer, as parameters of ours.

Names are those of CTranslate2's `TransformerSpec`. What is not known there, or computes something that no model of ours
does, is refused by name. Called by `export.imports.from_ctranslate2`.
"""

import math
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from export.imports.common import ImportedModelError
from export.imports.ctranslate2_file import ModelFile, Variable, dequantised
from export.imports.ctranslate2_files import Config
from export.imports.tensors import Tensors

SPECIFICATION = "TransformerSpec"
# Earlier revisions have other names, or do not tell the number of heads. From 5 on, each stack has options of its own.
OLDEST_REVISION, FIRST_PER_STACK, NEWEST_REVISION = 3, 5, 7

ACTIVATIONS = {0: "relu", 2: "silu", 3: "gelu"}
ACTIVATION_NAMES = ("ReLU", "GELU by tanh", "Swish", "GELU", "GELU by sigmoid", "tanh", "sigmoid")
# CTranslate2's own, unless config.json says another.
USUAL_EPSILON = {"layer": 1e-5, "rms": 1e-6}
OUR_EPSILON = 1e-5

# Options without effect on tokens, or without any while those that are refused are off.
IGNORED = ("alignment_layer", "alignment_heads", "embeddings_merge", "alibi_use_positive_positions", "scale_alibi")
REFUSED = ("alibi", "multi_query_attention")
WHOLE_MODEL_OPTIONS = ("num_heads", "pre_norm", "activation", "embeddings_merge", "alignment_layer", "alignment_heads")
ROOT_OPTIONS = (
    "unk_token",
    "bos_token",
    "eos_token",
    "with_source_bos",
    "with_source_eos",
    "with_target_bos",
    "user_decoder_start_tokens",
)


@dataclass(frozen=True, slots=True)
class TransformerVariables:
    """A Transformer as CTranslate2 stores it.

    Attributes:
        fields: of our `TransformerConfig`, without limits, ties and biases.
        layers: parameters of layers and of the ends of stacks, by our names.
        source_embedding: [V source, d_model].
        target_embedding: [V target, d_model].
        output: [V target, d_model].
        output_bias: [V target]; None if there is none.
        positions: of source and target, [positions, d_model]; None if CTranslate2 computes them.
        starts_from_zero: whether a translation starts from no token, but from an embedding of zeros.
    """

    fields: dict[str, object]
    layers: dict[str, Tensor]
    source_embedding: Tensor
    target_embedding: Tensor
    output: Tensor
    output_bias: Tensor | None
    positions: tuple[Tensor | None, Tensor | None]
    starts_from_zero: bool


def read_transformer(path: Path, file: ModelFile, config: Config) -> TransformerVariables:
    """Returns the variables of a model.

    Raises:
        ImportedModelError: naming what is missing, or what no model of ours does.
    """
    if file.specification != SPECIFICATION:
        raise ImportedModelError(f"{path}: {file.specification}: expected {SPECIFICATION}, an encoder-decoder")
    if not OLDEST_REVISION <= file.revision <= NEWEST_REVISION:
        expected = f"expected {OLDEST_REVISION} to {NEWEST_REVISION}: convert the model again"
        raise ImportedModelError(f"{path}: revision of {SPECIFICATION} is {file.revision}, {expected}")
    variables = dequantised(path, file.variables)
    if file.revision < FIRST_PER_STACK:
        variables = _per_stack(variables)
    # Texts among the variables are the configuration of earlier versions.
    told = {name: value for name, value in variables.items() if name not in ROOT_OPTIONS}
    scalars = {name: float(value.reshape(())) for name, value in told.items() if value.size == 1 and value.ndim == 0}
    flags = {name for name, value in told.items() if value.dtype == np.int8}
    tensors = {name: torch.tensor(value, dtype=torch.float32) for name, value in told.items() if name not in scalars}
    with Tensors(path, tensors) as weights:
        return _Reader(path, scalars, flags, weights).read(config)


def computed_positions(length: int, d_model: int) -> Tensor:
    """Returns the encodings that CTranslate2 computes where a model has none, float32 [length, d_model].

    All sines, then all cosines, of angles (position + 1) / 10000^(i / (d_model / 2 - 1)).
    Source: CTranslate2's src/layers/common.cc; the formula is that of tensor2tensor.
    """
    halves = torch.arange(d_model // 2, dtype=torch.float64)
    scales = torch.exp(halves * (-math.log(10000.0) / (d_model // 2 - 1)))
    angles = torch.arange(1, length + 1, dtype=torch.float64)[:, None] * scales
    return torch.cat((angles.sin(), angles.cos()), dim=1).float()


class _Reader:
    """Takes a model apart: what is taken is no longer there, and what is left at the end is refused."""

    def __init__(self, path: Path, scalars: dict[str, float], flags: AbstractSet[str], weights: Tensors) -> None:
        self._path = path
        self._scalars = scalars
        self._flags = flags
        self._weights = weights

    def read(self, config: Config) -> TransformerVariables:
        """Takes everything."""
        weights = self._weights
        source_embedding, target_embedding = self._embedding("encoder"), self._embedding("decoder")
        starts_from_zero = bool(self._scalars.pop("decoder/start_from_zero_embedding", 0.0))
        d_model = source_embedding.shape[-1]
        fields = self._shape(d_model)
        self._check_left()
        norm = "layer" if weights.has("encoder/layer_0/self_attention/layer_norm/beta") else "rms"
        self._check_epsilon(norm, config)
        fields |= {"norm": norm, "positions": "learned"}
        if weights.has("encoder/layer_0/ffn/linear_0_noact/weight"):
            if fields["activation"] != "silu":
                raise self._refusal("encoder/activation", fields["activation"], "Swish in gated layers")
            fields["activation"] = "swiglu"
        layers = dict(self._stack("encoder", fields)) | dict(self._stack("decoder", fields))
        if not fields["encoder_layers"] or not fields["decoder_layers"]:
            raise self._refusal("encoder and decoder", "no layers", "at least one each")
        fields["d_ff"] = len(layers["encoder.0.feed_forward.inner.weight"])
        output = weights.take("decoder/projection/weight", tuple(target_embedding.shape))
        return TransformerVariables(
            fields=fields,
            layers=layers,
            source_embedding=source_embedding,
            target_embedding=target_embedding,
            output=output,
            output_bias=weights.take_optional("decoder/projection/bias"),
            positions=(
                weights.take_optional("encoder/position_encodings/encodings"),
                weights.take_optional("decoder/position_encodings/encodings"),
            ),
            starts_from_zero=starts_from_zero,
        )

    def _embedding(self, stack: str) -> Tensor:
        older, newer = f"{stack}/embeddings/weight", f"{stack}/embeddings_0/weight"
        name = newer if self._weights.has(newer) else older
        return self._weights.take_matrix(name)

    def _shape(self, d_model: int) -> dict[str, object]:
        """Returns what both stacks have to say alike, and their depths."""
        fields: dict[str, object] = {"d_model": d_model}
        for name, read in (
            ("heads", self._heads),
            ("norm_position", self._norm_position),
            ("activation", self._activation),
            ("scale_embeddings", lambda stack: self._scaled(stack, d_model)),
        ):
            encoder, decoder = read("encoder"), read("decoder")
            if encoder != decoder:
                raise self._refusal(f"decoder: {name}", decoder, f"{encoder} as in the encoder")
            fields[name] = encoder
        for stack in ("encoder", "decoder"):
            layers = (f"{stack}/layer_{number}/self_attention/linear_0/weight" for number in count())
            fields[f"{stack}_layers"] = sum(1 for _ in takewhile(self._weights.has, layers))
        return fields

    def _heads(self, stack: str) -> int:
        name = f"{stack}/num_heads"
        if name not in self._scalars:
            raise ImportedModelError(f"{self._path}: {name}: is missing")
        return int(self._scalars.pop(name))

    def _norm_position(self, stack: str) -> str:
        return "pre" if self._scalars.pop(f"{stack}/pre_norm", 1.0) else "post"

    def _activation(self, stack: str) -> str:
        name = f"{stack}/activation"
        number = int(self._scalars.pop(name, 0.0))
        if number not in ACTIVATIONS:
            value = ACTIVATION_NAMES[number] if 0 <= number < len(ACTIVATION_NAMES) else number
            raise self._refusal(name, value, ", ".join(ACTIVATION_NAMES[known] for known in ACTIVATIONS))
        return ACTIVATIONS[number]

    def _scaled(self, stack: str, d_model: int) -> bool:
        """Returns whether embeddings are multiplied by sqrt(d_model): said by a flag, by the factor, or not at all."""
        newer, older = f"{stack}/scale_embeddings", f"{stack}/embeddings/multiply_by_sqrt_depth"
        name = newer if newer in self._scalars else older
        if name not in self._scalars:
            return True
        factor = self._scalars.pop(name)
        if name in self._flags:
            return bool(factor)
        if not math.isclose(factor, math.sqrt(d_model), rel_tol=1e-6) and factor != 1:
            raise self._refusal(name, factor, f"1 or {math.sqrt(d_model)}")
        return factor != 1

    def _check_epsilon(self, norm: str, config: Config) -> None:
        epsilon = config.layer_norm_epsilon or USUAL_EPSILON[norm]
        if not math.isclose(epsilon, OUR_EPSILON):
            raise self._refusal("layer_norm_epsilon", epsilon, OUR_EPSILON)

    def _stack(self, stack: str, fields: dict[str, object]) -> Iterator[tuple[str, Tensor]]:
        gated = fields["activation"] == "swiglu"
        for number in range(int(str(fields[f"{stack}_layers"]))):
            ours, theirs = f"{stack}.{number}", f"{stack}/layer_{number}"
            yield from self._split(f"{ours}.self_attention", f"{theirs}/self_attention/linear_0", "query key value")
            yield from self._linear(f"{ours}.self_attention.output", f"{theirs}/self_attention/linear_1")
            yield from self._norm(f"{ours}.self_attention_residual.norm", f"{theirs}/self_attention/layer_norm", fields)
            if stack == "decoder":
                yield from self._linear(f"{ours}.cross_attention.query", f"{theirs}/attention/linear_0")
                yield from self._split(f"{ours}.cross_attention", f"{theirs}/attention/linear_1", "key value")
                yield from self._linear(f"{ours}.cross_attention.output", f"{theirs}/attention/linear_2")
                yield from self._norm(f"{ours}.cross_attention_residual.norm", f"{theirs}/attention/layer_norm", fields)
            names = {"gate": "linear_0", "inner": "linear_0_noact"} if gated else {"inner": "linear_0"}
            for part, name in {**names, "outer": "linear_1"}.items():
                yield from self._linear(f"{ours}.feed_forward.{part}", f"{theirs}/ffn/{name}", biased=not gated)
            yield from self._norm(f"{ours}.feed_forward_residual.norm", f"{theirs}/ffn/layer_norm", fields)
        if fields["norm_position"] == "pre":
            yield from self._norm(f"{stack}_norm", f"{stack}/layer_norm", fields)

    def _split(self, ours: str, theirs: str, parts: str) -> Iterator[tuple[str, Tensor]]:
        """Yields the projections that are packed into one, each with a bias."""
        names = parts.split()
        packed = dict(self._linear("packed", theirs))
        shape = tuple(packed["packed.weight"].shape)
        if shape[0] % len(names) or not shape[0]:
            raise self._refusal(f"{theirs}/weight", shape, f"a multiple of {len(names)} rows")
        for kind in ("weight", "bias"):
            for name, part in zip(names, packed[f"packed.{kind}"].chunk(len(names)), strict=True):
                yield f"{ours}.{name}.{kind}", part.clone()

    def _linear(self, ours: str, theirs: str, *, biased: bool = True) -> Iterator[tuple[str, Tensor]]:
        weight = self._weights.take_matrix(f"{theirs}/weight")
        yield f"{ours}.weight", weight
        if biased:
            name = f"{theirs}/bias"
            has_bias = self._weights.has(name)
            yield f"{ours}.bias", self._weights.take(name, (len(weight),)) if has_bias else torch.zeros(len(weight))

    def _norm(self, ours: str, theirs: str, fields: dict[str, object]) -> Iterator[tuple[str, Tensor]]:
        yield f"{ours}.weight", self._weights.take(f"{theirs}/gamma")
        if fields["norm"] == "layer":
            yield f"{ours}.bias", self._weights.take(f"{theirs}/beta")

    def _check_left(self) -> None:
        """Refuses options that are set and not known."""
        for name, value in sorted(self._scalars.items()):
            option = name.rpartition("/")[2]
            if option in REFUSED and not value:
                continue
            if option not in IGNORED:
                raise self._refusal(name, f"{value:g}", "no such option: no model of ours has it")

    def _refusal(self, name: str, value: object, expected: object) -> ImportedModelError:
        return ImportedModelError(f"{self._path}: {name}: {value}: expected {expected}")


def _per_stack(variables: dict[str, Variable]) -> dict[str, Variable]:
    """Returns variables with the options of the whole model handed down to both stacks."""
    handed = {
        f"{stack}/{name}": value
        for name, value in variables.items()
        for stack in ("encoder", "decoder")
        if name in WHOLE_MODEL_OPTIONS
    }
    return {**{name: value for name, value in variables.items() if name not in WHOLE_MODEL_OPTIONS}, **handed}
