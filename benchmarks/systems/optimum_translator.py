"""Our model as Optimum runs it: `generate` of `transformers` over graphs in ONNX Runtime, in static batches.

As a program it is the process of `benchmarks.harness.process`, in the environment of
`benchmarks.systems.optimum_environment`.
"""

import torch
from onnxruntime import SessionOptions
from optimum.onnxruntime import ORTModelForSeq2SeqLM

from benchmarks.systems.generate_translator import GenerateTranslator
from benchmarks.systems.translating import take_turns


def load_optimum(folder: str, copies: int, threads: int) -> GenerateTranslator:
    """Returns a model that `benchmarks.systems.optimum_model` exported: one copy with the threads of all."""
    torch.set_num_threads(copies * threads)
    options = SessionOptions()
    options.intra_op_num_threads = copies * threads
    return GenerateTranslator(ORTModelForSeq2SeqLM.from_pretrained(folder, session_options=options))


if __name__ == "__main__":
    take_turns(load_optimum)
