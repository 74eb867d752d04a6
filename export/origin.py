"""Where the model of an export comes from: a training run, or a bundle that was made of one."""

from pathlib import Path

from export.bundled_model import read_bundle
from export.make_bundle import Sample, read_samples
from export.source_model import Exportable
from model.run import RunFolder
from serve.bundle.bundle import MANIFEST_FILE


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
