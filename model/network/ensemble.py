"""Several models that translate together: the probability of a token is the mean of theirs."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from dragoman.model.network.transformer import DecoderState, Memory, Transformer


class Ensemble:
    """Members with the same vocabulary and special ids. Its limits are those of the first member."""

    def __init__(self, members: Sequence[Transformer]) -> None:
        first = members[0]
        self.members = members
        self.limits = first.limits
        self.pad_id, self.bos_id, self.eos_id = first.pad_id, first.bos_id, first.eos_id
        self.device = first.device

    def encode(self, source_ids: Tensor) -> list[Memory]:
        """Returns the memory of each member for source ids [B, S]."""
        return [member.encode(source_ids) for member in self.members]

    def start(self, memory: list[Memory]) -> DecoderState:
        """Returns the members' states; the name of each begins with the number of its member."""
        return {
            f"{number}/{name}": tensor
            for number, (member, part) in enumerate(zip(self.members, memory, strict=True))
            for name, tensor in member.start(part).items()
        }

    def decode_step(self, token_ids: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Returns the logarithms of the mean probabilities of the next token, float [B, V], and the next states."""
        scores: list[Tensor] = []
        following: DecoderState = {}
        for number, member in enumerate(self.members):
            prefix = f"{number}/"
            own = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
            logits, its_state = member.decode_step(token_ids, own)
            scores.append(logits.float().log_softmax(dim=-1))
            following |= {f"{prefix}{name}": tensor for name, tensor in its_state.items()}
        return torch.stack(scores).logsumexp(dim=0) - math.log(len(scores)), following
