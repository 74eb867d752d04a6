"""Our model as PyTorch computes it, in static batches: the reference of every graph, as a translator.

As a program it is the process of `benchmarks.harness.process`.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from benchmarks.systems.checkpoint import read_checkpoint
from benchmarks.systems.translating import LENGTH_PENALTY, Batching, SourceSentence, batches, take_turns
from model.search import Generated, generate_beam, generate_greedy


class PyTorchTranslator:
    """A model that `benchmarks.systems.checkpoint` has written."""

    def __init__(self, folder: str, copies: int, threads: int) -> None:
        """Loads the model; there is one copy, with the threads of all."""
        torch.set_num_threads(copies * threads)
        self._model = read_checkpoint(Path(folder))

    def translate(self, sentences: Sequence[SourceSentence], beam_size: int, batching: Batching) -> list[Sequence[int]]:
        """Returns the target tokens of each sentence."""
        targets: dict[int, Sequence[int]] = {}
        for batch in batches(sentences, batching):
            self._limit(*sentences[batch[0]].limits)
            answers = self._generate([sentences[number].source_ids for number in batch], beam_size)
            targets |= {number: answer.target_ids for number, answer in zip(batch, answers, strict=True)}
        return [targets[number] for number in range(len(sentences))]

    def _generate(self, sources: Sequence[Sequence[int]], beam_size: int) -> list[Generated]:
        if beam_size == 1:
            return generate_greedy(self._model, sources)
        return generate_beam(self._model, sources, beam_size, LENGTH_PENALTY)

    def _limit(self, shortest: int, longest: int) -> None:
        # The search knows no least length: where it is also the greatest, the end token is never chosen.
        self._model.limits = self._model.limits.model_copy(update={"max_target_tokens": longest})
        if shortest and self._model.output_bias is None:
            self._model.output_bias = nn.Parameter(torch.zeros(self._model.vocabulary_size), requires_grad=False)
        if shortest and self._model.output_bias is not None:
            self._model.output_bias.data[self._model.eos_id] = -math.inf


if __name__ == "__main__":
    take_turns(PyTorchTranslator)
