"""Reads the model to export: a training run, or a bundle of Dragoman in fp32 or, with native graphs, in int8.

The weights in a bundle's graphs are sufficient to rebuild the Transformer. A bundle can therefore be exported again
with another precision or variant, verified and evaluated without its training run. The model of an int8
bundle has the rounded weights.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

from dragoman.export.graphs.native.models import read_native
from dragoman.export.graphs.native.weights import float_parameters
from dragoman.export.graphs.to_onnx import read_weights
from dragoman.export.source_model import Exportable
from dragoman.model.config import Direction, RunConfig, TransformerConfig
from dragoman.model.errors import RunError, first_problem
from dragoman.model.network.transformer import Transformer
from dragoman.model.run import RunFolder, TrainedModel
from dragoman.model.samples import Sample, read_samples
from dragoman.model.tokenizer.tokenizer import Tokenizer, TokenizerError
from dragoman.serve.bundle.bundle import MANIFEST_FILE, Bundle, BundleError, damage_explained
from dragoman.serve.bundle.manifest import CacheSpec
from dragoman.serve.bundle.tokenizer import load_tokenizer

# Parameter names in the graph and in the model. The exporter renames `positions` where it collides with an input.
ENCODER_NAMES = {
    "positions": "source_positions.table",
    "embedding_norm.weight": "source_embedding_norm.weight",
    "embedding_norm.bias": "source_embedding_norm.bias",
}
DECODER_NAMES = {
    "positions_1": "target_positions.table",
    "embedding_norm.weight": "target_embedding_norm.weight",
    "embedding_norm.bias": "target_embedding_norm.bias",
    "embedding.weight": "target_embedding.weight",
    "projection.weight": "output.weight",
    "projection.bias": "output_bias",
}
CROSS_ATTENTION = re.compile(r"cross\.(\d+)\.(.+)")
LAYER = re.compile(r"layers\.(\d+)\.layer\.(.+)")
PACKED = re.compile(r"layers\.(\d+)\.qkv\.(weight|bias)")
PARTS = ("query", "key", "value")


def read_bundle(path: Path) -> tuple[Exportable, list[Sample]]:
    """Returns the model of a bundle, and the texts of its golden sentences.

    Raises:
        RunError: if the folder is no bundle, or its graphs lack parameters of a trained Transformer.
        TokenizerError: if the tokenizer cannot be loaded.
    """
    with _opened(path) as bundle:
        manifest, trained = bundle.manifest, _read_trained(bundle)
        exportable = Exportable(
            model=trained.model,
            tokenizer=trained.tokenizer,
            directions=manifest.directions,
            source_suffix=manifest.source_suffix,
            unk_id=manifest.unk_id,
            training=manifest.provenance.training,
            steps=trained.steps,
            description=manifest.description,
        )
        return exportable, _samples(bundle)


def read_trained(path: Path) -> tuple[TrainedModel, list[Sample]]:
    """Returns the model of a bundle, to train it further, and the texts of its golden sentences.

    Raises:
        RunError: as `read_bundle`.
        TokenizerError: as `read_bundle`.
    """
    with _opened(path) as bundle:
        return _read_trained(bundle), _samples(bundle)


def _samples(bundle: Bundle) -> list[Sample]:
    return [Sample(Direction(source=s.source_language, target=s.target_language), s.source) for s in bundle.golden]


@contextmanager
def _opened(path: Path) -> Iterator[Bundle]:
    try:
        with damage_explained(path, RunError, TokenizerError):
            yield Bundle.open(path)
    except BundleError as error:
        raise RunError(str(error)) from error


def _read_trained(bundle: Bundle) -> TrainedModel:
    path, manifest = bundle.folder, bundle.manifest
    if manifest.precision != "fp32" and (manifest.precision != "int8" or manifest.cache is None):
        raise RunError(f"{path}: precision: {manifest.precision}: expected fp32, or int8 with variant cpu")
    tokenizer = load_tokenizer(bundle)
    if not isinstance(tokenizer, Tokenizer):
        raise RunError(f"{path}: tokenizer: imported, expected the bundle of a training run")
    try:
        config = RunConfig.model_validate(manifest.provenance.training)
    except ValidationError as error:
        raise RunError(f"{path}: provenance: training: {first_problem(error)}") from error
    if not isinstance(config.model, TransformerConfig):
        raise RunError(f"{path}: {config.model.architecture}: expected a Transformer")
    return TrainedModel(config, tokenizer, _read_transformer(bundle, config.model), manifest.provenance.steps)


def _read_transformer(bundle: Bundle, config: TransformerConfig) -> Transformer:
    manifest = bundle.manifest
    model = Transformer(
        config, manifest.vocabulary_size, manifest.pad_id, bos_id=manifest.bos_id, eos_id=manifest.eos_id
    )
    known = model.state_dict()
    parameters = {
        # Blocks may end with padding.
        name: value[tuple(map(slice, known[name].shape))]
        for name, value in read_parameters(bundle)
        if name in known
    }
    for name in known:
        if name not in parameters:
            problem = "no graph has this weight, expected a bundle of the current `dragoman export`"
            raise RunError(f"{bundle.folder}: {name}: {problem}")
    model.load_state_dict(parameters)
    return model.eval().requires_grad_(requires_grad=False)


def read_parameters(bundle: Bundle) -> Iterator[tuple[str, Tensor]]:
    """Yields the float32 weights of both graphs, with parameter names of `Transformer` where they match.

    Weights of native graphs may have more rows and columns.
    """
    cache = bundle.manifest.cache
    arrays = _read_states_graphs(bundle) if cache is None else _read_native_graphs(bundle, cache)
    for name, array in arrays:
        yield name, torch.from_numpy(array.copy())


def _read_native_graphs(bundle: Bundle, cache: CacheSpec) -> Iterator[tuple[str, NDArray[np.float32]]]:
    for path in (bundle.encoder_path, bundle.decoder_path):
        yield from float_parameters(read_native(path), cache.heads * cache.head_size)


def _read_states_graphs(bundle: Bundle) -> Iterator[tuple[str, NDArray[np.float32]]]:
    for side, path, names in (
        ("encoder", bundle.encoder_path, ENCODER_NAMES),
        ("decoder", bundle.decoder_path, DECODER_NAMES),
    ):
        for name, value in read_weights(path).items():
            if packed := PACKED.fullmatch(name):
                for part, split in zip(PARTS, np.split(value, len(PARTS)), strict=True):
                    yield f"{side}.{packed[1]}.self_attention.{part}.{packed[2]}", split
            elif layer := LAYER.fullmatch(name):
                yield f"{side}.{layer[1]}.{layer[2]}", value
            elif cross := CROSS_ATTENTION.fullmatch(name):
                yield f"decoder.{cross[1]}.cross_attention.{cross[2]}", value
            elif name.startswith("norm."):
                yield f"{side}_{name}", value
            else:
                yield names.get(name, name), value


def read_origin(path: Path) -> tuple[Exportable, list[Sample]]:
    """Returns the model of a training run or bundle, and texts for its golden sentences.

    Raises:
        RunError: if the folder is neither, or the model cannot be loaded.
        CorpusError: if the samples of a run cannot be read.
        TokenizerError: if the tokenizer cannot be loaded or lacks a token.
    """
    if (path / MANIFEST_FILE).is_file():
        return read_bundle(path)
    run = RunFolder(path)
    trained = run.load()
    return Exportable.of_run(trained), read_samples(run.samples, trained.config.directions)
