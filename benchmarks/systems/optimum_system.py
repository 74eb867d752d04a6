"""Dragoman's model in Optimum: `generate` of `transformers` over graphs in ONNX Runtime, in static batches.

Optimum has an environment of its own, because its latest version requires `transformers` before 4.58: `make optimum`
creates it and installs Dragoman there with the extra `optimum`. `python -m benchmarks.systems.optimum_system FOLDER`
exports the graphs, as users of Optimum do, into the folder of a checkpoint.
"""

import sys
from pathlib import Path

import torch

from benchmarks.systems.pytorch_system import read_checkpoint
from benchmarks.systems.transformers_system import GenerateTranslator, to_transformers


def load_optimum(folder: str, copies: int, threads: int) -> GenerateTranslator:
    """Returns one copy of an exported model, with the threads of all copies."""
    from onnxruntime import SessionOptions  # noqa: PLC0415
    from optimum.onnxruntime import ORTModelForSeq2SeqLM  # noqa: PLC0415 - only in its environment

    torch.set_num_threads(copies * threads)
    options = SessionOptions()
    options.intra_op_num_threads = copies * threads
    return GenerateTranslator(ORTModelForSeq2SeqLM.from_pretrained(folder, session_options=options))


def export_checkpoint(folder: Path) -> None:
    """Writes graphs with a KV cache into the folder of a checkpoint."""
    from optimum.exporters.onnx import onnx_export_from_model  # noqa: PLC0415 - only in its environment

    model = to_transformers(read_checkpoint(folder))
    onnx_export_from_model(model, folder, task="text2text-generation-with-past")


if __name__ == "__main__":
    export_checkpoint(Path(sys.argv[1]))
