"""Token-budget batches of sentences of similar length, shuffled in every epoch.

The stream of batches is a function of the seed and the position, so a resumed run gets the batches of an uninterrupted
one. Processes that train together take every n-th batch.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from dragoman.model.alignment.links import Link
from dragoman.model.tokenizer.tokenizer import EOS_ID, OWN_IDS, PAD_ID, SpecialIds


class Batch(NamedTuple):
    """Padded ids of a batch, int64.

    Attributes:
        source_ids: [B, S], each row ending in EOS.
        target_inputs: [B, T], each row beginning with BOS.
        target_labels: [B, T], the token that follows each input; each row ending in EOS.
        alignments: the source tokens that each label translates, float [B, T, S], or None. The row of a linked label
            sums to 1; the others are 0.
        pad_id: the id of padding.
    """

    source_ids: Tensor
    target_inputs: Tensor
    target_labels: Tensor
    alignments: Tensor | None = None
    pad_id: int = PAD_ID

    def count_tokens(self) -> int:
        """Returns the number of non-padding tokens of both sides."""
        return int((self.source_ids != self.pad_id).sum() + (self.target_labels != self.pad_id).sum())


@dataclass(frozen=True, slots=True)
class TokenizedPairs:
    """Pairs `sources[i]`, `targets[i]` of ids, without BOS, suffix and EOS, and links of their tokens, or none."""

    sources: list[list[int]]
    targets: list[list[int]]
    links: list[list[Link]] = field(default_factory=list)
    special: SpecialIds = OWN_IDS
    suffix: tuple[int, ...] = (EOS_ID,)

    def __len__(self) -> int:
        return len(self.sources)

    def lengths(self) -> np.ndarray:
        """Returns the length of the longer side of each pair, one special token included, int64 [N]."""
        return np.array([max(len(s), len(t)) + 1 for s, t in zip(self.sources, self.targets, strict=True)])

    def batch(self, indices: Sequence[int]) -> Batch:
        """Returns some pairs as a batch."""
        pad_id, bos_id, eos_id = self.special
        source_ids = pad([[*self.sources[i], *self.suffix] for i in indices], pad_id)
        target_labels = pad([[*self.targets[i], eos_id] for i in indices], pad_id)
        return Batch(
            source_ids,
            pad([[bos_id, *self.targets[i]] for i in indices], pad_id),
            target_labels,
            _alignments([self.links[i] for i in indices], source_ids, target_labels) if self.links else None,
            pad_id,
        )


class BatchStream(IterableDataset[Batch]):
    """An endless stream of training batches that can start at any batch, counted over all processes.

    `epoch_starts` are the first batches of every epoch so far. Subword sampling changes an epoch's length, so a resumed
    run restores this list instead of recomputing the epochs.
    """

    def __init__(self, pairs_of_epoch: Callable[[int], TokenizedPairs], batch_tokens: int, seed: int) -> None:
        super().__init__()
        self._pairs_of_epoch = pairs_of_epoch
        self._batch_tokens = batch_tokens
        self._seed = seed
        self.first_batch = 0
        self.epoch_starts = [0]

    def __iter__(self) -> Iterator[Batch]:
        """Yields every n-th batch for one of n processes."""
        rank, processes = _rank_and_processes()
        first = self.first_batch
        for epoch in count(bisect_right(self.epoch_starts, first) - 1):
            pairs = self._pairs_of_epoch(epoch)
            plans = self._plan_epoch(epoch, pairs.lengths())
            start = self.epoch_starts[epoch]
            if len(self.epoch_starts) == epoch + 1:
                self.epoch_starts.append(start + len(plans))
            mine = (number for number in range(max(first, start), start + len(plans)) if number % processes == rank)
            yield from (pairs.batch(plans[number - start]) for number in mine)

    def _plan_epoch(self, epoch: int, lengths: np.ndarray) -> list[list[int]]:
        random = np.random.default_rng((self._seed, epoch))
        # Shuffled before the stable sort, so that sentences of equal length are grouped anew in every epoch.
        order = random.permutation(len(lengths))
        order = order[np.argsort(lengths[order], kind="stable")]
        plans = plan_batches(order.tolist(), lengths, self._batch_tokens)
        return [plans[i] for i in random.permutation(len(plans))]


def plan_batches(order: Sequence[int], lengths: np.ndarray, batch_tokens: int) -> list[list[int]]:
    """Cuts indices, in order, into batches whose rows times longest length stay within the token budget.

    `lengths` [N] are in tokens. A single pair that exceeds the budget is a batch of its own.
    """
    plans: list[list[int]] = []
    longest = 0
    for index in order:
        longest = max(longest, int(lengths[index]))
        if not plans or longest * (len(plans[-1]) + 1) > batch_tokens:
            plans.append([])
            longest = int(lengths[index])
        plans[-1].append(index)
    return plans


def sorted_batches(pairs: TokenizedPairs, batch_tokens: int) -> list[Batch]:
    """Returns every pair once, shortest first, as validation batches."""
    lengths = pairs.lengths()
    order = np.argsort(lengths, kind="stable").tolist()
    return [pairs.batch(plan) for plan in plan_batches(order, lengths, batch_tokens)]


def pad(rows: Sequence[Sequence[int]], pad_id: int = PAD_ID) -> Tensor:
    """Returns rows of ids as one tensor, int64 [B, longest], right-padded."""
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), lengths.max()), pad_id)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = np.fromiter(chain.from_iterable(rows), np.int64)
    return torch.from_numpy(padded)


def _alignments(links: Sequence[Sequence[Link]], source_ids: Tensor, target_labels: Tensor) -> Tensor:
    """Returns the alignments of a batch, float [B, T, S]: the linked source tokens of a label have equal weights."""
    alignments = torch.zeros(*target_labels.shape, source_ids.shape[1])
    indices = [(row, target, source) for row, pair in enumerate(links) for source, target in pair]
    if indices:
        alignments[tuple(torch.tensor(indices).unbind(dim=1))] = 1.0
    return alignments / alignments.sum(dim=-1, keepdim=True).clamp(min=1.0)


def _rank_and_processes() -> tuple[int, int]:
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return 0, 1
    return torch.distributed.get_rank(), torch.distributed.get_world_size()
