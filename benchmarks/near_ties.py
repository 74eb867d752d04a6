"""Sentences that two systems translate differently, and how close each of these decisions was.

The margin of a decision is the smallest change of log-probability that reverses it. The last decision, which hypothesis
is best, is measured in log-probability per token. Systems that round differently may differ at a margin near zero, and
only there.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from benchmarks.systems.translating import LENGTH_PENALTY
from model.data.batches import pad
from model.network.translation_model import TranslationModel
from model.search import Beams, Candidates, cut, ended, expand, generate_greedy, reorder, select_rows, survivors


@dataclass(frozen=True, slots=True)
class Difference:
    """A sentence, counted from 1, and the margin of the narrowest decision in its search."""

    sentence: int
    margin: float


def differences(
    system: Sequence[Sequence[int]], baseline: Sequence[Sequence[int]], margin: Callable[[int], float]
) -> list[Difference]:
    """Returns the sentences whose target tokens differ; `margin` maps the index of a sentence to its margin."""
    return [
        Difference(place + 1, margin(place))
        for place, (found, expected) in enumerate(zip(system, baseline, strict=True))
        if list(found) != list(expected)
    ]


def narrowest_margin(model: TranslationModel, source_ids: Sequence[int], beam_size: int) -> float:
    """Returns the smallest margin of a search in PyTorch; the model is in evaluation mode."""
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
