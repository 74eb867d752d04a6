"""Models in Marian's own formats: a file in the place of a valid one is refused, or can be read."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dragoman.export.imports.common import ImportedModelError, ImportOptions, importing
from dragoman.export.imports.marian_bin import read_marian_bin
from dragoman.export.imports.marian_files import import_marian_files
from dragoman.export.imports.marian_shortlist import read_marian_shortlist
from dragoman.export.imports.marian_vocabulary import read_vocabularies
from dragoman.model.weights import TransformerWeights

CORPUS = Path(__file__).parent / "corpus" / "marian_files"
# The first byte of an input is the index of its kind; the corpus has an example by the name of each.
KINDS = ("model.bin", "model.npz", "vocab.yml", "decoder.yml", "source.spm", "lex.s2t", "lex.s2t.bin")


def check(data: bytes) -> None:
    """Reads a file in the place of a valid one."""
    kind, content = KINDS[data[0] % len(KINDS)] if data else KINDS[0], data[1:]
    with TemporaryDirectory() as name, suppress(ImportedModelError), importing(Path(name)):
        _read(kind, content, Path(name))


def _read(kind: str, content: bytes, folder: Path) -> None:
    if kind == "model.bin":
        for tensor in read_marian_bin(folder / kind, content).values():
            np.asarray(tensor)
        return
    for name, source in (("vocab.yml", "vocab.yml"), ("source.spm", "source.spm"), ("target.spm", "source.spm")):
        (folder / name).write_bytes((CORPUS / source).read_bytes()[1:])
    (folder / kind).write_bytes(content)
    if kind == "model.npz":
        model = import_marian_files(folder, ImportOptions("en", "de")).model
        assert isinstance(model, TransformerWeights)
        for parameter in model.parameters.values():
            np.asarray(parameter)
    vocabularies = read_vocabularies(folder)
    read_marian_shortlist(folder, vocabularies, len(vocabularies.source) + 1)
