"""Where the model of an export comes from: a training run, or a bundle that was made of one.

The model of a bundle of our own: a Transformer with the parameters that the bundle's graphs hold.

So who does not have the run that a bundle was made from can still export it again, in other numbers or for other
operators, verify that, and compare it with other systems.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

from export.graphs.to_onnx import read_weights
from export.make_bundle import Sample, read_samples
from export.source_model import Exportable
from model.config import Direction, RunConfig, TransformerConfig
from model.network.transformer import Transformer
from model.run import RunError, RunFolder
from model.tokenizer.tokenizer import Tokenizer
from serve.bundle.bundle import MANIFEST_FILE, Bundle, BundleError
from serve.bundle.manifest import first_problem
from serve.bundle.tokenizer import load_tokenizer

# What a graph calls a parameter, and what the model does. The exporter avoids the name of the decoder's input.
ENCODER_NAMES = {"positions": "source_positions.table"}
DECODER_NAMES = {
    "positions_1": "target_positions.table",
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
        RunError: if it is no bundle, or its graphs do not hold the parameters of a trained Transformer.
        TokenizerError: if its tokenizer is none.
    """
    try:
        bundle = Bundle.open(path)
    except BundleError as error:
        raise RunError(str(error)) from error
    manifest = bundle.manifest
    if manifest.precision != "fp32":
        raise RunError(f"{path}: precision: {manifest.precision}: expected fp32, as it was trained")
    tokenizer = load_tokenizer(bundle)
    if not isinstance(tokenizer, Tokenizer):
        raise RunError(f"{path}: tokenizer: of an import: expected the bundle of a training run")
    exportable = Exportable(
        model=_read_transformer(bundle),
        tokenizer=tokenizer,
        directions=manifest.directions,
        source_suffix=manifest.source_suffix,
        unk_id=manifest.unk_id,
        training=manifest.provenance.training,
        steps=manifest.provenance.steps,
    )
    return exportable, [
        Sample(Direction(source=s.source_language, target=s.target_language), s.source) for s in bundle.golden
    ]


def _read_transformer(bundle: Bundle) -> Transformer:
    manifest = bundle.manifest
    try:
        config = RunConfig.model_validate(manifest.provenance.training).model
    except ValidationError as error:
        raise RunError(f"{bundle.folder}: provenance: training: {first_problem(error)}") from error
    if not isinstance(config, TransformerConfig):
        raise RunError(f"{bundle.folder}: {config.architecture}: expected a Transformer")
    model = Transformer(
        config, manifest.vocabulary_size, manifest.pad_id, bos_id=manifest.bos_id, eos_id=manifest.eos_id
    )
    known = model.state_dict().keys()
    parameters = {name: value for name, value in read_parameters(bundle) if name in known}
    for name in known:
        if name not in parameters:
            problem = "in no graph, expected graphs that name all weights, as `dragoman export` writes them now"
            raise RunError(f"{bundle.folder}: {name}: {problem}")
    model.load_state_dict(parameters)
    return model.eval().requires_grad_(requires_grad=False)


def read_parameters(bundle: Bundle) -> Iterator[tuple[str, Tensor]]:
    """Yields the weights of both graphs in 32 bits, by the names of `Transformer` where they are its parameters."""
    for side, path, names in (
        ("encoder", bundle.encoder_path, ENCODER_NAMES),
        ("decoder", bundle.decoder_path, DECODER_NAMES),
    ):
        for name, array in read_weights(path).items():
            value = torch.from_numpy(array.copy())
            if packed := PACKED.fullmatch(name):
                for part, split in zip(PARTS, value.chunk(len(PARTS)), strict=True):
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
    """Returns a model, and texts for its golden sentences.

    Args:
        path: folder of a training run, or of a bundle in 32 bits.

    Raises:
        RunError: if the folder is neither, or its model cannot be had.
        CorpusError: if the samples of a run cannot be read.
        TokenizerError: if its tokenizer is none, or lacks a token.
    """
    if (path / MANIFEST_FILE).is_file():
        return read_bundle(path)
    run = RunFolder(path)
    trained = run.load()
    return Exportable.of_run(trained), read_samples(run.samples, trained.config.directions)
