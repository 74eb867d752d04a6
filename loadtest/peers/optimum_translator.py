"""Our model as Optimum runs it: `generate` of `transformers` over graphs in ONNX Runtime, in static batches.

As a program it is the process of `loadtest.comparison.system_process`, in the environment of
`loadtest.peers.optimum_environment`.
"""

import torch
from onnxruntime import SessionOptions
from optimum.onnxruntime import ORTModelForSeq2SeqLM

from loadtest.compared.translating import take_turns
from loadtest.peers.generate_translator import GenerateTranslator


def load_optimum(folder: str, copies: int, threads: int) -> GenerateTranslator:
    """Returns a model that `loadtest.peers.optimum_model` has exported; there is one copy, with the threads of all."""
    torch.set_num_threads(copies * threads)
    options = SessionOptions()
    options.intra_op_num_threads = copies * threads
    return GenerateTranslator(ORTModelForSeq2SeqLM.from_pretrained(folder, session_options=options))


if __name__ == "__main__":
    take_turns(load_optimum)
