"""Several models that translate together: the probability of a token is the mean of theirs.

Shapes: B rows, S source length, T target length, D sum of the members' widths, V vocabulary.
"""

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from dragoman.model.network.translation_model import DecoderState, Memory, TranslationModel


class Ensemble(TranslationModel):
    """Members with the same vocabulary and special ids. Its limits are those of the first member."""

    def __init__(self, members: Sequence[TranslationModel]) -> None:
        first = members[0]
        super().__init__(first.limits, first.vocabulary_size, first.pad_id, bos_id=first.bos_id, eos_id=first.eos_id)
        self.member_modules = nn.ModuleList(members)

    @property
    def members(self) -> list[TranslationModel]:
        """The models, in the order given."""
        return cast("list[TranslationModel]", list(self.member_modules))

    @property
    def output_weight(self) -> Tensor:
        """The members' matrices side by side, [V, D]. Logits are no product with it; see `project`."""
        return torch.cat([member.output_weight for member in self.members], dim=1)

    def encode(self, source_ids: Tensor) -> Memory:
        """Returns the members' memories side by side, [B, S, D]."""
        memories = [member.encode(source_ids) for member in self.members]
        return Memory(torch.cat([memory.states for memory in memories], dim=-1), memories[0].valid)

    def decode(self, target_ids: Tensor, memory: Memory) -> Tensor:
        """Returns the members' states side by side, [B, T, D]."""
        return torch.cat(
            [member.decode(target_ids, part) for member, part in zip(self.members, self._split(memory), strict=True)],
            dim=-1,
        )

    def project(self, states: Tensor) -> Tensor:
        """Returns the logarithms of the mean probabilities, [..., V], for states [..., D]."""
        parts = torch.split(states, self._widths(), dim=-1)
        return _mean([member.project(part) for member, part in zip(self.members, parts, strict=True)])

    def start(self, memory: Memory) -> DecoderState:
        """Returns the members' states; the name of each begins with the number of its member."""
        return {
            f"{number}/{name}": tensor
            for number, (member, part) in enumerate(zip(self.members, self._split(memory), strict=True))
            for name, tensor in member.start(part).items()
        }

    def decode_step(self, token_ids: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Returns the logarithms of the mean probabilities of the next token, and the next states."""
        logits: list[Tensor] = []
        following: DecoderState = {}
        for number, member in enumerate(self.members):
            prefix = f"{number}/"
            own = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
            its_logits, its_state = member.decode_step(token_ids, own)
            logits.append(its_logits)
            following |= {f"{prefix}{name}": tensor for name, tensor in its_state.items()}
        return _mean(logits), following

    def attention_maps(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Returns the maps of all members, one member after the other."""
        return torch.cat([member.attention_maps(source_ids, target_ids) for member in self.members], dim=1)

    def _widths(self) -> list[int]:
        """Returns the width of each member's states, which is also that of its memory."""
        return [member.output_weight.shape[1] for member in self.members]

    def _split(self, memory: Memory) -> list[Memory]:
        return [Memory(part, memory.valid) for part in torch.split(memory.states, self._widths(), dim=-1)]


def _mean(logits: Sequence[Tensor]) -> Tensor:
    """Returns the logarithm of the mean of the distributions that logits [..., V] stand for."""
    return torch.stack([logit.float().log_softmax(dim=-1) for logit in logits]).logsumexp(dim=0) - math.log(len(logits))
