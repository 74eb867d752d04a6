"""`python -m tests.support.conversion_memory PRECISION FOLDER...`: converts models; prints the sizes of memory."""

import json
import sys
import tempfile
from pathlib import Path
from typing import cast

import dragoman.export.graph_decoder  # noqa: F401 - the memory of the library is not that of the conversion
from benchmarks.harness.process import peak_bytes
from dragoman.export.imports.common import ImportOptions
from dragoman.export.imports.ctranslate2 import import_ctranslate2
from dragoman.export.imports.golden import golden_samples
from dragoman.export.imports.hugging_face import import_checkpoint
from dragoman.export.imports.marian_files import import_marian_files
from dragoman.export.imports.marian_folder import is_marian_folder
from dragoman.export.make_bundle import BundleOptions, write_bundle
from dragoman.serve.bundle.manifest import Precision

WANTED = ImportOptions("en", "de", 64, 16)
SENTENCES = 4


def convert(folder: Path, precision: Precision, out: Path) -> int:
    """Converts a model, whose kind its files determine; returns the size of the bundle in bytes."""
    read = import_marian_files if is_marian_folder(folder) else import_checkpoint
    exportable = (import_ctranslate2 if (folder / "model.bin").exists() else read)(folder, WANTED)
    bundle = write_bundle(exportable, golden_samples(exportable)[:SENTENCES], out, BundleOptions("m", "cpu", precision))
    return sum(path.stat().st_size for path in bundle.folder.iterdir())


def main() -> None:
    """Prints a JSON object: sizes of the bundles, and by how much the peak of memory grew."""
    precision, *folders = sys.argv[1:]
    before = peak_bytes()
    with tempfile.TemporaryDirectory(dir=Path(folders[0]).parent) as temporary:
        sizes = [
            convert(Path(folder), cast("Precision", precision), Path(temporary) / str(number))
            for number, folder in enumerate(folders)
        ]
    print(json.dumps({"bundles": sizes, "memory": peak_bytes() - before, "libraries": before}))


if __name__ == "__main__":
    main()
