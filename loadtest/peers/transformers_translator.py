"""Our model as `generate` of Hugging Face's `transformers` runs it, in static batches.

As a program it is the process of `loadtest.comparison.system_process`.
"""

from pathlib import Path

import torch

from loadtest.compared.translating import take_turns
from loadtest.peers.checkpoint import read_checkpoint
from loadtest.peers.generate_translator import GenerateTranslator
from loadtest.peers.transformers_model import to_transformers


def load_transformers(folder: str, copies: int, threads: int) -> GenerateTranslator:
    """Returns a model that `loadtest.peers.checkpoint` has written; there is one copy, with the threads of all."""
    torch.set_num_threads(copies * threads)
    return GenerateTranslator(to_transformers(read_checkpoint(Path(folder))))


if __name__ == "__main__":
    take_turns(load_transformers)
