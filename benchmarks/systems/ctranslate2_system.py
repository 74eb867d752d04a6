"""CTranslate2 as a translator, and Dragoman's models in its format, written by its own library.

Processes that translate have no torch, whose memory would be counted: `ctranslate2.specs` imports it, on first use.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ctranslate2
import numpy as np
from numpy.typing import NDArray

from benchmarks.systems.translating import LENGTH_PENALTY, Batching, SourceSentence, Translator, groups

if TYPE_CHECKING:
    from torch import Tensor

    from dragoman.model.network.attention import MultiHeadAttention
    from dragoman.model.network.transformer import Transformer

ACTIVATIONS = {"relu": 0, "silu": 2, "swiglu": 2, "gelu": 3}
CONFIG = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "decoder_start_token": "<s>"}


def spec_of(model: "Transformer", pieces: Sequence[str], **config: Any) -> "ctranslate2.specs.TransformerSpec":
    """Returns a model with pieces by id as a CTranslate2 specification; `config` overrides defaults of config.json."""
    options = model.config
    specs = ctranslate2.specs
    spec = specs.TransformerSpec.from_config(
        (options.encoder_layers, options.decoder_layers),
        options.heads,
        pre_norm=options.norm_position == "pre",
        activation=specs.common_spec.Activation(ACTIVATIONS[options.activation]),
        ffn_glu=options.activation == "swiglu",
        rms_norm=options.norm == "rms",
        layernorm_embedding=options.norm_embeddings,
    )
    sources = (model.source_weight, model.source_positions, model.source_embedding_norm)
    targets = (model.target_weight, model.target_positions, model.target_embedding_norm)
    for stack, layers, (weight, positions, embedding_norm), norm in (
        (spec.encoder, model.encoder_layers, sources, model.encoder_norm),
        (spec.decoder, model.decoder_layers, targets, model.decoder_norm),
    ):
        if options.norm_embeddings:
            _set_norm(stack.layernorm_embedding, embedding_norm)
        embeddings = stack.embeddings[0] if isinstance(stack.embeddings, list) else stack.embeddings
        embeddings.weight = _array(weight)
        stack.scale_embeddings = options.scale_embeddings
        stack.position_encodings.encodings = _array(positions.table)
        if options.norm_position == "pre":
            _set_norm(stack.layer_norm, norm)
        for layer_spec, layer in zip(stack.layer, layers, strict=True):
            _set_layer(layer_spec, layer)
    spec.decoder.projection.weight = _array(model.output_weight)
    if model.output_bias is not None:
        spec.decoder.projection.bias = _array(model.output_bias)
    for name, value in {**CONFIG, "add_source_eos": True, "layer_norm_epsilon": options.norm_epsilon, **config}.items():
        setattr(spec.config, name, value)
    spec.register_source_vocabulary(list(pieces))
    spec.register_target_vocabulary(list(pieces))
    return spec


def write_model(folder: Path, spec: "ctranslate2.specs.TransformerSpec", kind: str = "float32") -> Path:
    """Writes a specification into a new folder, only once: quantization changes it in place."""
    folder.mkdir(parents=True)
    spec.validate()
    spec.optimize(quantization=kind)
    spec.save(str(folder))
    return folder


def _set_layer(spec: Any, layer: Any) -> None:
    _set_attention(spec.self_attention, layer.self_attention, ("query", "key", "value"))
    _set_norm(spec.self_attention.layer_norm, layer.self_attention_residual.norm)
    if hasattr(layer, "cross_attention"):
        _set_attention(spec.attention, layer.cross_attention, ("query",), ("key", "value"))
        _set_norm(spec.attention.layer_norm, layer.cross_attention_residual.norm)
    network = layer.feed_forward
    gated = network.gate is not None
    _set_linear(spec.ffn.linear_0, network.gate if gated else network.inner)
    if gated:
        _set_linear(spec.ffn.linear_0_noact, network.inner)
    _set_linear(spec.ffn.linear_1, network.outer)
    _set_norm(spec.ffn.layer_norm, layer.feed_forward_residual.norm)


def _set_attention(spec: Any, attention: "MultiHeadAttention", *packs: tuple[str, ...]) -> None:
    """Fills in an attention, whose projections are packed."""
    for linear_spec, names in zip(spec.linear, packs, strict=False):
        parts = [getattr(attention, name) for name in names]
        linear_spec.weight = np.concatenate([_array(part.weight) for part in parts])
        linear_spec.bias = np.concatenate([_array(part.bias) for part in parts])
    _set_linear(spec.linear[-1], attention.output)


def _set_linear(spec: Any, linear: Any) -> None:
    spec.weight = _array(linear.weight)
    if linear.bias is not None:
        spec.bias = _array(linear.bias)


def _set_norm(spec: Any, norm: Any) -> None:
    spec.gamma = _array(norm.weight)
    if hasattr(spec, "beta"):
        spec.beta = _array(norm.bias)


def _array(tensor: "Tensor") -> NDArray[np.float32]:
    """Returns a copy, because quantization works in place."""
    return np.array(tensor.detach().numpy())


class CTranslate2Translator(Translator):
    """Sorts and batches by itself."""

    def __init__(self, folder: str, copies: int, threads: int, compute_type: str, device: str = "cpu") -> None:
        """Loads the model; `copies` batches run concurrently, with `threads` each on a CPU."""
        self._pieces: list[str] = json.loads((Path(folder) / "shared_vocabulary.json").read_bytes())
        self._ids = {piece: token_id for token_id, piece in enumerate(self._pieces)}
        # The queue is unbounded: all groups are queued at once.
        sizes = {"inter_threads": copies, "intra_threads": threads, "max_queued_batches": -1}
        self._translator = ctranslate2.Translator(folder, device=device, compute_type=compute_type, **sizes)

    def translate(self, sentences: Sequence[SourceSentence], beam_size: int, batching: Batching) -> list[Sequence[int]]:
        """Returns the target tokens of each sentence; queues all groups before it reads the first result."""
        pending: list[tuple[int, Any]] = []
        for group in groups(sentences):
            shortest, longest = sentences[group[0]].limits
            results = self._translator.translate_batch(
                # CTranslate2 adds EOS.
                [[self._pieces[token_id] for token_id in sentences[number].source_ids[:-1]] for number in group],
                max_batch_size=batching.size,
                batch_type=batching.unit,
                asynchronous=True,
                beam_size=beam_size,
                length_penalty=LENGTH_PENALTY,
                min_decoding_length=shortest,
                max_decoding_length=longest,
                return_scores=False,
            )
            pending += zip(group, results, strict=True)
        targets = {number: [self._ids[piece] for piece in item.result().hypotheses[0]] for number, item in pending}
        return [targets[number] for number in range(len(sentences))]
