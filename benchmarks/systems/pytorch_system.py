"""Dragoman's model in PyTorch, in static batches, with the checkpoints that baselines in PyTorch load.

Also: how close the decisions of a search are, which explains translations that differ between systems.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch
from torch import nn

from benchmarks.systems.translating import LENGTH_PENALTY, BatchTranslator
from model.config import TransformerConfig
from model.data.batches import pad
from model.network.attention import Positions
from model.network.transformer import Transformer
from model.network.translation_model import TranslationModel
from model.search import Candidates, beam_search, generate_beam, generate_greedy
from model.tokenizer.tokenizer import PAD_ID

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


class PyTorchTranslator(BatchTranslator):
    """One copy of a model in a checkpoint, with the threads of all copies."""

    def __init__(self, folder: str, copies: int, threads: int, device: str = "cpu", precision: str = "fp32") -> None:
        torch.set_num_threads(copies * threads)
        model = read_checkpoint(Path(folder)).to(device)
        self._model = model.half() if precision == "fp16" else model

    def generate(
        self, sources: list[Sequence[int]], limits: tuple[int, int], beam_size: int
    ) -> Iterable[Sequence[int]]:
        """Returns the target tokens of a batch, by the search of `model.search`."""
        # The search has no minimum length. Where it equals the maximum, EOS gets probability zero.
        model, (shortest, longest) = self._model, limits
        model.limits = model.limits.model_copy(update={"max_target_tokens": longest})
        if shortest and model.output_bias is None:
            zeros = model.output_weight.new_zeros(model.vocabulary_size)
            model.output_bias = nn.Parameter(zeros, requires_grad=False)
        if shortest and model.output_bias is not None:
            model.output_bias.data[model.eos_id] = -math.inf
        if beam_size == 1:
            answers = generate_greedy(model, sources)
        else:
            answers = generate_beam(model, sources, beam_size, LENGTH_PENALTY)
        return [answer.target_ids for answer in answers]


def narrowest_margin(model: TranslationModel, source_ids: Sequence[int], beam_size: int) -> float:
    """Returns the smallest change of log-probability that reverses a decision of a search.

    The last decision, which hypothesis is best, is measured in log-probability per token. Systems that round
    differently may differ at a margin near zero, and only there. The model is in evaluation mode.
    """
    if beam_size == 1:
        return min(generate_greedy(model, [source_ids])[0].gaps)
    margins = [math.inf]

    def observe(candidates: Candidates) -> None:
        margins.extend(_step_margins(candidates, beam_size, model.eos_id))

    with torch.inference_mode():
        state, limit = model.start(model.encode(pad([source_ids], model.pad_id))), model.limits.max_target_tokens
        special = {"bos_id": model.bos_id, "eos_id": model.eos_id}
        (found,) = beam_search(model.decode_step, state, beam_size, LENGTH_PENALTY, limit, **special, observe=observe)
    return min(*margins, *(found[0].normalized_score - each.normalized_score for each in found[1:2]))


def _step_margins(candidates: Candidates, beam_size: int, eos_id: int) -> Iterator[float]:
    """Yields the margin between finished and unfinished hypotheses, and that of the last survivor."""
    scores, ends = candidates.scores[0], candidates.token_ids[0] == eos_id  # [2K], best first
    if ends[beam_size - 1] or ends[beam_size]:
        yield float(scores[beam_size - 1] - scores[beam_size])
    going = scores[~ends]
    if len(going) > beam_size:
        yield float(going[beam_size - 1] - going[beam_size])
