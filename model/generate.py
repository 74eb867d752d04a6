"""Translation with PyTorch, by any model: greedy, or with a beam.

Training validates with it, export makes golden sentences with it and verifies the graphs against it. It knows ids, no
text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from model.data.batches import pad
from model.network.translation_model import DecoderState, TranslationModel
from model.search import beam_search, select_rows


@dataclass(frozen=True, slots=True)
class Generated:
    """A translation of one sequence.

    Attributes:
        target_ids: its tokens, the end token excluded.
        score: sum of the natural log-probabilities of its tokens, the end token included.
        gaps: greedy search only: for every step, how far the best logit was above the second best.
    """

    target_ids: tuple[int, ...]
    score: float
    gaps: tuple[float, ...] = ()


@torch.inference_mode()
def generate_greedy(model: TranslationModel, sources: Sequence[Sequence[int]]) -> list[Generated]:
    """Translates one batch of complete sources, taking the most probable token at every step.

    A translation ends with the end token, or when it holds `max_target_tokens` tokens. The model is to be in evaluation
    mode.
    """
    drafts = [_Draft(model.eos_id) for _ in sources]
    running = drafts  # the draft that each row of the state writes
    state = _start(model, sources)
    token_ids = torch.full((len(sources),), model.bos_id, device=model.output_weight.device)
    for _ in range(model.limits.max_target_tokens):
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
    model: TranslationModel, sources: Sequence[Sequence[int]], beam_size: int, length_penalty: float
) -> list[Generated]:
    """Translates one batch of complete sources and returns the best hypothesis of a beam for each.

    Args:
        model: in evaluation mode.
        sources: each as the model was trained to read it, most often with an end token.
        beam_size: hypotheses kept for each source; 1 is greedy search.
        length_penalty: alpha of score / length^alpha, by which finished hypotheses are compared; the length counts
            generated tokens, the end token included.
    """
    state = _start(model, sources)
    found = beam_search(
        model.decode_step,
        state,
        beam_size,
        length_penalty,
        model.limits.max_target_tokens,
        bos_id=model.bos_id,
        eos_id=model.eos_id,
    )
    return [Generated(hypotheses[0].target_ids, hypotheses[0].score) for hypotheses in found]


def _start(model: TranslationModel, sources: Sequence[Sequence[int]]) -> DecoderState:
    return model.start(model.encode(pad(sources, model.pad_id).to(model.output_weight.device)))


@dataclass(slots=True)
class _Draft:
    """A translation while it is written."""

    eos_id: int
    target_ids: list[int] = field(default_factory=list)
    score: float = 0.0
    gaps: list[float] = field(default_factory=list)
    finished: bool = False

    def take(self, token_id: int, log_probability: float, gap: float) -> None:
        """Takes the token of one step."""
        self.score += log_probability
        self.gaps.append(gap)
        self.finished = token_id == self.eos_id
        if not self.finished:
            self.target_ids.append(token_id)

    def generated(self) -> Generated:
        """Returns the translation."""
        return Generated(tuple(self.target_ids), self.score, tuple(self.gaps))
