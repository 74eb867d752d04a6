"""Dragoman's model in PyTorch, in static batches, with the checkpoints that baselines in PyTorch load.

Also: how close the decisions of a search are, which explains translations that differ between systems.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import nn

from benchmarks.systems.translating import LENGTH_PENALTY, Batching, SourceSentence, Translator, translate_batches
from model.config import TransformerConfig
from model.data.batches import pad
from model.network.attention import Positions
from model.network.transformer import Transformer
from model.network.translation_model import TranslationModel
from model.search import (
    Beams,
    Candidates,
    cut,
    ended,
    expand,
    generate_beam,
    generate_greedy,
    reorder,
    select_rows,
    survivors,
)
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


class PyTorchTranslator(Translator):
    """One copy of a model in a checkpoint, with the threads of all copies."""

    def __init__(self, folder: str, copies: int, threads: int, device: str = "cpu", precision: str = "fp32") -> None:
        torch.set_num_threads(copies * threads)
        model = read_checkpoint(Path(folder)).to(device)
        self._model = model.half() if precision == "fp16" else model

    def translate(self, sentences: Sequence[SourceSentence], beam_size: int, batching: Batching) -> list[Sequence[int]]:
        """Returns the target tokens of each sentence."""

        def generate(sources: list[Sequence[int]], shortest: int, longest: int) -> list[Sequence[int]]:
            self._limit(shortest, longest)
            if beam_size == 1:
                answers = generate_greedy(self._model, sources)
            else:
                answers = generate_beam(self._model, sources, beam_size, LENGTH_PENALTY)
            return [answer.target_ids for answer in answers]

        return translate_batches(sentences, batching, generate)

    def _limit(self, shortest: int, longest: int) -> None:
        # The search has no minimum length. Where it equals the maximum, EOS gets probability zero.
        model = self._model
        model.limits = model.limits.model_copy(update={"max_target_tokens": longest})
        if shortest and model.output_bias is None:
            zeros = model.output_weight.new_zeros(model.vocabulary_size)
            model.output_bias = nn.Parameter(zeros, requires_grad=False)
        if shortest and model.output_bias is not None:
            model.output_bias.data[model.eos_id] = -math.inf


def narrowest_margin(model: TranslationModel, source_ids: Sequence[int], beam_size: int) -> float:
    """Returns the smallest change of log-probability that reverses a decision of a search.

    The last decision, which hypothesis is best, is measured in log-probability per token. Systems that round
    differently may differ at a margin near zero, and only there. The model is in evaluation mode.
    """
    if beam_size == 1:
        return min(generate_greedy(model, [source_ids])[0].gaps)
    return min(_beam_margins(model, source_ids, beam_size))


@torch.inference_mode()
def _beam_margins(model: TranslationModel, source_ids: Sequence[int], beam_size: int) -> Iterator[float]:
    """Yields the margin of every decision of `model.search.beam_search`."""
    state = model.start(model.encode(pad([source_ids], model.pad_id)))
    state = select_rows(state, torch.zeros(beam_size, dtype=torch.int64))
    beams = Beams.first(1, beam_size, model.bos_id, torch.device("cpu"))
    scores: list[float] = []
    for _ in range(model.limits.max_target_tokens):
        logits, following = model.decode_step(beams.target_ids[:, :, -1].flatten(), state)
        candidates = expand(beams, logits)
        yield from _step_margins(candidates, beam_size, model.eos_id)
        scores += [found.normalized_score for _, found in ended(beams, candidates, LENGTH_PENALTY, model.eos_id)]
        if len(scores) >= beam_size:
            break
        beams, rows = survivors(beams, candidates, torch.tensor([0]), model.eos_id)
        state = reorder(state, following, rows, all_stay=True)
    else:
        scores += [found.normalized_score for _, found in cut(beams, LENGTH_PENALTY)]
    best, *others = sorted(scores, reverse=True)
    yield best - max(others, default=-math.inf)


def _step_margins(candidates: Candidates, beam_size: int, eos_id: int) -> Iterator[float]:
    """Yields the margin between finished and unfinished hypotheses, and that of the last survivor."""
    scores, ends = candidates.scores[0], candidates.token_ids[0] == eos_id  # [2K], best first
    if ends[beam_size - 1] or ends[beam_size]:
        yield float(scores[beam_size - 1] - scores[beam_size])
    going = scores[~ends]
    if len(going) > beam_size:
        yield float(going[beam_size - 1] - going[beam_size])
