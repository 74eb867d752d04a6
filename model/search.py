"""Greedy and beam search with PyTorch models. Works on ids, not text.

In beam search each sentence owns K adjacent rows and leaves the batch as soon as it is translated.

Shapes: B sentences still searched, K beam size, R = B * K rows, T target length so far including BOS, V vocabulary.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dragoman.model.data.batches import pad
from dragoman.model.network.ensemble import Ensemble
from dragoman.model.network.transformer import DecoderState, Transformer
from dragoman.model.tokenizer.tokenizer import BOS_ID, EOS_ID

DecodeStep = Callable[[Tensor, DecoderState], tuple[Tensor, DecoderState]]
Model = Transformer | Ensemble


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A finished translation: it ended in EOS or reached the token limit.

    `target_ids` exclude EOS. `score` is the sum of the natural log-probabilities of the tokens, EOS included;
    `normalized_score` ranks hypotheses, see `normalize`.
    """

    target_ids: tuple[int, ...]
    score: float
    normalized_score: float


@dataclass(frozen=True, slots=True)
class Beams:
    """The live hypotheses of every sentence: ids, int64 [B, K, T], starting with BOS, and scores, float [B, K].

    A score is -inf where a sentence has fewer than K hypotheses.
    """

    target_ids: Tensor
    scores: Tensor

    @classmethod
    def first(cls, sentences: int, beam_size: int, bos_id: int, device: torch.device) -> "Beams":
        """Returns the beams before the first step: one empty hypothesis per sentence."""
        scores = torch.full((sentences, beam_size), -math.inf, device=device)
        scores[:, 0] = 0.0
        return cls(torch.full((sentences, beam_size, 1), bos_id, device=device), scores)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The best 2K one-token expansions of each sentence, best first.

    All tensors are [B, 2K]; `origins` are indices of the expanded hypotheses. Each hypothesis has one
    expansion by EOS, so at most K of the 2K end and the other K fill the beam.
    """

    scores: Tensor
    origins: Tensor
    token_ids: Tensor


def beam_search(
    decode_step: DecodeStep,
    state: DecoderState,
    beam_size: int,
    length_penalty: float,
    max_target_tokens: int,
    *,
    bos_id: int = BOS_ID,
    eos_id: int = EOS_ID,
) -> list[list[Hypothesis]]:
    """Returns the K best finished hypotheses of each sentence, best first.

    An expansion by EOS is finished if it is among the best K of the 2K candidates. A sentence ends when K hypotheses
    are finished, first come, first served (Kasai et al. 2022, arXiv:2204.05424, section 2), or when its hypotheses hold
    `max_target_tokens` tokens, EOS excluded: then the live ones compete with the finished ones as they are. `state` is
    the decoder's state before the first step, one row per sentence; `length_penalty` is alpha of `normalize`.
    """
    any_tensor = next(iter(state.values()))
    sentences, device = len(any_tensor), any_tensor.device
    finished: list[list[Hypothesis]] = [[] for _ in range(sentences)]
    searched = list(range(sentences))  # maps each of the B to its sentence
    beams = Beams.first(sentences, beam_size, bos_id, device)
    state = select_rows(state, torch.arange(sentences, device=device).repeat_interleave(beam_size))
    for _ in range(max_target_tokens):
        logits, following = decode_step(beams.target_ids[:, :, -1].flatten(), state)
        candidates = expand(beams, logits)
        for index, hypothesis in ended(beams, candidates, length_penalty, eos_id):
            finished[searched[index]].append(hypothesis)
        indices = [index for index, sentence in enumerate(searched) if len(finished[sentence]) < beam_size]
        if not indices:
            break
        beams, rows = survivors(beams, candidates, torch.tensor(indices, device=device), eos_id)
        state = reorder(state, following, rows, all_stay=len(indices) == len(searched))
        searched = [searched[index] for index in indices]
    else:
        for index, hypothesis in cut(beams, length_penalty):
            finished[searched[index]].append(hypothesis)
    ranked = (sorted(found, key=lambda hypothesis: -hypothesis.normalized_score) for found in finished)
    return [found[:beam_size] for found in ranked]


def normalize(score: float, length: int, length_penalty: float) -> float:
    """Returns score / length^alpha; the length counts generated tokens, EOS included.

    With alpha 0 this is the sum of log-probabilities, which favors short translations; with alpha 1 it is their mean.
    It differs from ((5 + length) / 6)^alpha of Wu et al. 2016, arXiv:1609.08144, equation 14.
    """
    return float(score / length**length_penalty)


def expand(beams: Beams, logits: Tensor) -> Candidates:
    """Returns the candidates of a step for logits [R, V]."""
    sentences, beam_size = beams.scores.shape
    vocabulary_size = logits.shape[-1]
    log_probabilities = logits.log_softmax(dim=-1).view(sentences, beam_size, vocabulary_size)
    scores = (beams.scores[:, :, None] + log_probabilities).flatten(start_dim=1)  # [B, K * V]
    best = scores.topk(2 * beam_size)
    return Candidates(best.values, best.indices // vocabulary_size, best.indices % vocabulary_size)


def ended(beams: Beams, candidates: Candidates, length_penalty: float, eos_id: int) -> Iterator[tuple[int, Hypothesis]]:
    """Yields the hypotheses that a step finished, each with the index of its sentence among the B."""
    beam_size, length = beams.target_ids.shape[1:]
    finishing = (candidates.token_ids == eos_id) & (candidates.scores != -math.inf)
    finishing[:, beam_size:] = False
    indices = finishing.nonzero()[:, 0]
    target_ids = beams.target_ids[indices, candidates.origins[finishing], 1:]
    for index, ids, score in zip(
        indices.tolist(), target_ids.tolist(), candidates.scores[finishing].tolist(), strict=True
    ):
        yield index, Hypothesis(tuple(ids), score, normalize(score, length, length_penalty))


def cut(beams: Beams, length_penalty: float) -> Iterator[tuple[int, Hypothesis]]:
    """Yields the live hypotheses as they are, each with the index of its sentence among the B."""
    length = beams.target_ids.shape[2] - 1
    live = beams.scores != -math.inf
    indices = live.nonzero()[:, 0].tolist()
    for index, ids, score in zip(indices, beams.target_ids[live].tolist(), beams.scores[live].tolist(), strict=True):
        yield index, Hypothesis(tuple(ids[1:]), score, normalize(score, length, length_penalty))


def survivors(beams: Beams, candidates: Candidates, indices: Tensor, eos_id: int) -> tuple[Beams, Tensor]:
    """Returns the beams of some sentences after a step, and the rows their hypotheses come from, int64 [B' * K].

    `beams` are those before the step; `indices` are those among the B of the sentences that continue, int64 [B'].
    The new beams are the best K candidates that do not end.
    """
    beam_size = beams.scores.shape[1]
    best = candidates.scores.masked_fill(candidates.token_ids == eos_id, -math.inf)[indices].topk(beam_size)
    origins = candidates.origins[indices].gather(1, best.indices)
    token_ids = candidates.token_ids[indices].gather(1, best.indices)
    earlier_ids = beams.target_ids[indices[:, None], origins]  # [B', K, T]
    rows = (indices[:, None] * beam_size + origins).flatten()
    return Beams(torch.cat((earlier_ids, token_ids[:, :, None]), dim=2), best.values), rows


def reorder(state: DecoderState, following: DecoderState, rows: Tensor, *, all_stay: bool) -> DecoderState:
    """Moves every row's state to the row of the hypothesis that it continues.

    A tensor that a step passes on unchanged belongs to the source and is equal in all rows of a sentence. It is often
    the larger part of the state, and stays in place while all sentences stay. `state` is the one before the step,
    `following` the one after it; `rows` are the origins, int64, each a row of the same sentence.
    """
    moving = {name: tensor for name, tensor in following.items() if not (all_stay and tensor is state[name])}
    return {**following, **select_rows(moving, rows)}


def select_rows(state: DecoderState, rows: Tensor) -> DecoderState:
    """Returns the state of the given rows, int64, in their order; a row may occur several times."""
    return {name: tensor.index_select(0, rows) for name, tensor in state.items()}


@dataclass(frozen=True, slots=True)
class Generated:
    """A translation of one sequence.

    `target_ids` exclude EOS; `score` is the sum of the natural log-probabilities, EOS included. `gaps` has the best
    logit minus the second-best logit of each step, for greedy search only.
    """

    target_ids: tuple[int, ...]
    score: float
    gaps: tuple[float, ...] = ()


def generate(model: Model, sources: Sequence[Sequence[int]], beam_size: int, length_penalty: float) -> list[Generated]:
    """Translates one batch by greedy search, if the beam size is 1, or by beam search."""
    if beam_size == 1:
        return generate_greedy(model, sources)
    return generate_beam(model, sources, beam_size, length_penalty)


def translate_all(
    model: Model, sources: Sequence[Sequence[int]], batch_size: int, starts: Sequence[Sequence[int]] = ()
) -> list[Generated]:
    """Translates any number of sources by greedy search, in batches of similar length; see `generate_greedy`."""
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    found: dict[int, Generated] = {}
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        own_starts = [starts[index] for index in batch] if starts else ()
        found |= zip(batch, generate_greedy(model, [sources[index] for index in batch], own_starts), strict=True)
    return [found[index] for index in range(len(sources))]


@torch.inference_mode()
def generate_greedy(
    model: Model, sources: Sequence[Sequence[int]], starts: Sequence[Sequence[int]] = ()
) -> list[Generated]:
    """Translates one batch of complete sources, taking the most probable token at every step.

    A translation ends with EOS or after `max_target_tokens` tokens. `starts` are the tokens after BOS, equally many
    for each source; they are no part of the result. Requires a model in evaluation mode.
    """
    drafts = [_Draft(model.eos_id) for _ in sources]
    running = drafts  # the draft of each row of the state
    state = _start(model, sources)
    token_ids = torch.full((len(sources),), model.bos_id, device=model.device)
    forced = list(zip(*starts, strict=True))
    for forced_ids in forced:
        _, state = model.decode_step(token_ids, state)
        token_ids = torch.tensor(forced_ids, device=token_ids.device)
    for _ in range(model.limits.max_target_tokens - len(forced)):
        logits, state = model.decode_step(token_ids, state)
        best = logits.topk(2)
        token_ids = best.indices[:, 0]
        log_probabilities = best.values[:, 0] - logits.logsumexp(dim=-1)
        gaps = best.values[:, 0] - best.values[:, 1]
        for draft, *step in zip(running, token_ids.tolist(), log_probabilities.tolist(), gaps.tolist(), strict=True):
            draft.take(*step)
        unfinished = [row for row, draft in enumerate(running) if not draft.finished]
        if not unfinished:
            break
        if len(unfinished) < len(running):
            rows = torch.tensor(unfinished, device=token_ids.device)
            token_ids, state = token_ids[rows], select_rows(state, rows)
            running = [running[row] for row in unfinished]
    return [draft.generated() for draft in drafts]


@torch.inference_mode()
def generate_beam(
    model: Model, sources: Sequence[Sequence[int]], beam_size: int, length_penalty: float
) -> list[Generated]:
    """Returns the best hypothesis of beam search for each source of one batch; see `beam_search`.

    Requires a model in evaluation mode and complete encoder inputs, for most models with a final EOS.
    """
    found = beam_search(
        model.decode_step,
        _start(model, sources),
        beam_size,
        length_penalty,
        model.limits.max_target_tokens,
        bos_id=model.bos_id,
        eos_id=model.eos_id,
    )
    return [Generated(hypotheses[0].target_ids, hypotheses[0].score) for hypotheses in found]


def _start(model: Model, sources: Sequence[Sequence[int]]) -> DecoderState:
    memory: Any = model.encode(pad(sources, model.pad_id).to(model.device))
    return model.start(memory)


@dataclass(slots=True)
class _Draft:
    eos_id: int
    target_ids: list[int] = field(default_factory=list)
    score: float = 0.0
    gaps: list[float] = field(default_factory=list)
    finished: bool = False

    def take(self, token_id: int, log_probability: float, gap: float) -> None:
        """Appends the token of one step."""
        self.score += log_probability
        self.gaps.append(gap)
        self.finished = token_id == self.eos_id
        if not self.finished:
            self.target_ids.append(token_id)

    def generated(self) -> Generated:
        """Returns the translation."""
        return Generated(tuple(self.target_ids), self.score, tuple(self.gaps))
