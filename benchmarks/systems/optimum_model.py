"""Our Transformers as graphs of Optimum, exported from the models of `transformers` as its users do.

As a program it is called by `benchmarks.systems.optimum_environment`, in that environment.
"""

import sys
from pathlib import Path

from optimum.exporters.onnx import onnx_export_from_model

from benchmarks.systems.checkpoint import read_checkpoint
from benchmarks.systems.transformers_model import to_transformers


def export_checkpoint(folder: Path) -> None:
    """Writes graphs with a key-value cache of a checkpoint that `benchmarks.systems.checkpoint` wrote."""
    model = to_transformers(read_checkpoint(folder))
    onnx_export_from_model(model, folder, task="text2text-generation-with-past")


if __name__ == "__main__":
    export_checkpoint(Path(sys.argv[1]))
