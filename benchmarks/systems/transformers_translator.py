"""Our model as `generate` of Hugging Face's `transformers` runs it, in static batches.

As a program it is the process of `benchmarks.harness.process`.
"""

from pathlib import Path

import torch

from benchmarks.systems.checkpoint import read_checkpoint
from benchmarks.systems.generate_translator import GenerateTranslator
from benchmarks.systems.transformers_model import to_transformers
from benchmarks.systems.translating import take_turns


def load_transformers(folder: str, copies: int, threads: int) -> GenerateTranslator:
    """Returns a model that `benchmarks.systems.checkpoint` has written; there is one copy, with the threads of all."""
    torch.set_num_threads(copies * threads)
    return GenerateTranslator(to_transformers(read_checkpoint(Path(folder))))


if __name__ == "__main__":
    take_turns(load_transformers)
