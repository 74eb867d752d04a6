"""Our Transformers as graphs of Optimum, exported from the models of `transformers` as its users do.

As a program it is called by `loadtest.peers.optimum_environment`, in that environment.
"""

import sys
from pathlib import Path

from optimum.exporters.onnx import onnx_export_from_model

from loadtest.peers.checkpoint import read_checkpoint
from loadtest.peers.transformers_model import to_transformers


def export_checkpoint(folder: Path) -> None:
    """Writes graphs of the model that `loadtest.peers.checkpoint` has written, with a key-value cache, beside it."""
    model = to_transformers(read_checkpoint(folder))
    onnx_export_from_model(model, folder, task="text2text-generation-with-past")


if __name__ == "__main__":
    export_checkpoint(Path(sys.argv[1]))
