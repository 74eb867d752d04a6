"""Dragoman's model in PyTorch, in static batches, with the checkpoints that baselines in PyTorch load."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from benchmarks.systems.translating import LENGTH_PENALTY, Batching, SourceSentence, Translator, batches
from dragoman.model.config import TransformerConfig
from dragoman.model.network.attention import Positions
from dragoman.model.network.transformer import Transformer
from dragoman.model.search import generate
from dragoman.model.tokenizer.tokenizer import PAD_ID

FILE = "model.pt"


def write_checkpoint(folder: Path, model: Transformer) -> None:
    """Writes a model with Dragoman's special tokens into a new folder."""
    folder.mkdir(parents=True)
    content = {
        "config": model.config.model_dump(mode="json"),
        "vocabulary_size": model.vocabulary_size,
        "parameters": model.state_dict(),
    }
    torch.save(content, folder / FILE)


def read_checkpoint(folder: Path) -> Transformer:
    """Returns the model in evaluation mode."""
    content = torch.load(folder / FILE, weights_only=True)
    config = TransformerConfig.model_validate(content["config"])
    # On the meta device: no parameters are allocated only to be replaced. Memory is measured.
    with torch.device("meta"):
        model = Transformer(config, content["vocabulary_size"], PAD_ID)
    length = len(model.source_positions.table)
    # The position encodings are not in the file if a formula gives them.
    model.source_positions, model.target_positions = (
        Positions(config.positions, length, config.d_model) for _ in range(2)
    )
    model.load_state_dict(content["parameters"], assign=True)
    return model.eval()


class PyTorchTranslator(Translator):
    """One copy of a model in a checkpoint, with the threads of all copies; translates static batches."""

    def __init__(self, folder: str, copies: int, threads: int, device: str = "cpu", precision: str = "fp32") -> None:
        torch.set_num_threads(copies * threads)
        model = read_checkpoint(Path(folder)).to(device)
        self._model = model.half() if precision == "fp16" else model

    def translate(self, sentences: Sequence[SourceSentence], beam_size: int, batching: Batching) -> list[Sequence[int]]:
        """Returns the target tokens of each sentence, by the search of `dragoman.model.search`."""
        targets: dict[int, Sequence[int]] = {}
        for batch in batches(sentences, batching):
            self._limit(*sentences[batch[0]].limits)
            sources: list[Sequence[int]] = [sentences[number].source_ids for number in batch]
            answers = generate(self._model, sources, beam_size, LENGTH_PENALTY)
            targets |= {number: answer.target_ids for number, answer in zip(batch, answers, strict=True)}
        return [targets[number] for number in range(len(sentences))]

    def _limit(self, shortest: int, longest: int) -> None:
        # The search has no minimum length. Where it equals the maximum, EOS gets probability zero.
        model = self._model
        model.limits = model.limits.model_copy(update={"max_target_tokens": longest})
        if shortest and model.output_bias is None:
            model.output_bias = nn.Parameter(model.output_weight.new_zeros(model.vocabulary_size), requires_grad=False)
        if shortest and model.output_bias is not None:
            model.output_bias.data[model.eos_id] = -math.inf
