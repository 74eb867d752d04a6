"""Reads the model to export: a training run, or a bundle with native graphs.

The weights in the graphs are sufficient to rebuild the Transformer. A bundle can therefore be exported again with
another precision or variant, verified and evaluated without its training run. The model of an int8 bundle has the
rounded weights.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

from dragoman.export.graphs.native.models import read_native
from dragoman.export.graphs.native.weights import float_parameters
from dragoman.export.source_model import Exportable
from dragoman.model.config import Direction, RunConfig, TransformerConfig
from dragoman.model.errors import RunError, first_problem
from dragoman.model.network.transformer import Transformer
from dragoman.model.run import RunFolder, TrainedModel
from dragoman.model.samples import Sample, read_samples
from dragoman.model.tokenizer.tokenizer import Tokenizer, TokenizerError
from dragoman.serve.bundle.bundle import MANIFEST_FILE, Bundle, BundleError, damage_explained
from dragoman.serve.bundle.tokenizer import load_tokenizer


def read_bundle(path: Path) -> tuple[Exportable, list[Sample]]:
    """Returns the model and golden texts of a bundle; raises RunError or TokenizerError if they cannot be loaded."""
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
            license=manifest.license,
            beam_size=manifest.beam_size,
            context_separator=manifest.context_separator,
            shortlist=bundle.shortlist(),
        )
        return exportable, _samples(bundle)


def read_trained(path: Path) -> tuple[TrainedModel, list[Sample]]:
    """Returns the model of a bundle, to train it further, and its golden texts; raises errors like `read_bundle`."""
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
    if manifest.variant != "cpu":
        raise RunError(f"{path}: variant: {manifest.variant}: expected cpu")
    tokenizer = load_tokenizer(bundle)
    if not isinstance(tokenizer, Tokenizer):
        raise RunError(f"{path}: tokenizer: imported, expected the bundle of a training run")
    try:
        config = RunConfig.model_validate(manifest.provenance.training)
    except ValidationError as error:
        raise RunError(f"{path}: provenance: training: {first_problem(error)}") from error
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
        for name, value in read_parameters(bundle, config.d_model)
        if name in known
    }
    for name in known:
        if name not in parameters:
            problem = "no graph has this weight, expected a bundle of the current `dragoman export`"
            raise RunError(f"{bundle.folder}: {name}: {problem}")
    model.load_state_dict(parameters)
    return model.eval().requires_grad_(requires_grad=False)


def read_parameters(bundle: Bundle, d_model: int) -> Iterator[tuple[str, Tensor]]:
    """Yields the weights of both graphs as float32, named as in `Transformer`, some with more rows and columns."""
    for path in (bundle.encoder_path, bundle.decoder_path):
        for name, array in float_parameters(read_native(path), d_model):
            yield name, torch.from_numpy(array.copy())


def read_origin(path: Path) -> tuple[Exportable, list[Sample]]:
    """Returns model and texts of a run or bundle; raises RunError, CorpusError or TokenizerError if damaged."""
    if (path / MANIFEST_FILE).is_file():
        return read_bundle(path)
    run = RunFolder(path)
    trained = run.load()
    return Exportable.of_run(trained), read_samples(run.samples, trained.config.directions)
