"""Bundles with a random shortlist."""

from pathlib import Path

import numpy as np

from dragoman.export.graphs.native.models import NativeExport
from dragoman.export.torch_weights import to_weights
from dragoman.model.network.transformer import Transformer
from dragoman.serve.bundle.bundle import SHORTLIST_FILE, Bundle
from dragoman.serve.bundle.manifest import Manifest, ShortlistSpec
from dragoman.serve.bundle.shortlist import Shortlist


def random_shortlist(tokens: int, *, best: int = 5, frequent: int = 8) -> Shortlist:
    """Returns a shortlist with up to `best` tokens for each source token."""
    random = np.random.default_rng(8)
    entries = [random.integers(0, tokens, random.integers(best + 1)).tolist() for _ in range(tokens)]
    return Shortlist.of(frequent, entries)


def with_shortlist(bundle: Bundle, model: Transformer, folder: Path) -> tuple[Bundle, Shortlist]:
    """Returns a copy of the bundle of a model that has a shortlist, without hashes."""
    manifest = bundle.manifest
    for path in bundle.folder.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    graphs = NativeExport(to_weights(model), manifest.precision, folder).write(
        manifest.alignment_heads, shortlists=True
    )
    shortlist = random_shortlist(manifest.vocabulary_size)
    shortlist.write(folder / SHORTLIST_FILE)
    fields = manifest.model_dump() | {
        "decoder": graphs.decoder.model_dump(),
        "shortlist": ShortlistSpec(frequent=shortlist.frequent, best=shortlist.best).model_dump(),
    }
    return Bundle(folder, Manifest.model_validate(fields), bundle.golden), shortlist
