"""What a benchmark's system asks of a model: files that the system can load. Knows no torch.

`benchmarks.systems.compared_model` implements it, the systems of the benchmarks call it.
"""

from pathlib import Path
from typing import Protocol

from serve.bundle.manifest import GraphVariant, Precision


class ModelFiles(Protocol):
    """A model that writes itself in the form of every system, each into a new folder."""

    def write_bundle(self, folder: Path, variant: GraphVariant, precision: Precision) -> None:
        """Writes a bundle of ours."""

    def write_ctranslate2(self, folder: Path, compute_type: str) -> None:
        """Writes a model of CTranslate2, whose weights are of a type."""

    def write_checkpoint(self, folder: Path) -> None:
        """Writes what `benchmarks.systems.checkpoint` reads."""
