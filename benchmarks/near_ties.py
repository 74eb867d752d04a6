"""How close a search was to another result: two systems that round differently may part at a near tie, and only there.

The margin of a decision is by how much it would have to be missed to be another one, in natural log-probabilities; for
the last one, which hypothesis is best, in log-probability for each token. Called by
`benchmarks.offline`.

Where two systems translate the same sentences differently.

Knows no torch: what explains a difference is handed in. Called by `benchmarks.offline`.
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
    """A sentence that two systems translated differently.

    Attributes:
        sentence: its number, from 1 on.
        margin: of the narrowest decision in its search, see `benchmarks.near_ties`.
    """

    sentence: int
    margin: float


def differences(
    ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]], margin: Callable[[int], float]
) -> list[Difference]:
    """Returns the sentences whose translations differ.

    Args:
        ours: target tokens of each sentence.
        theirs: those of the other system.
        margin: returns that of a sentence, given its place in these lists.
    """
    return [
        Difference(place + 1, margin(place))
        for place, (our, their) in enumerate(zip(ours, theirs, strict=True))
        if list(our) != list(their)
    ]


def narrowest_margin(model: TranslationModel, source_ids: Sequence[int], beam_size: int) -> float:
    """Returns the margin of the narrowest decision of the search with PyTorch.

    Args:
        model: in evaluation mode.
        source_ids: as the model reads them.
        beam_size: 1 is greedy search.
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
    """Yields by how much a hypothesis finished or not, and by how much the last survivor survived."""
    scores, ends = candidates.scores[0], candidates.token_ids[0] == eos_id  # [2K], best first
    if ends[beam_size - 1] or ends[beam_size]:
        yield float(scores[beam_size - 1] - scores[beam_size])
    going = scores[~ends]
    if len(going) > beam_size:
        yield float(going[beam_size - 1] - going[beam_size])
