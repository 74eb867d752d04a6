"""Which sequences start together, and how they are laid out for the encoder: by length, in batches with little padding.

Every batch costs a fixed time however small it is, and every padded token costs time for nothing; the split into
batches has the least of both together. Called by `serve.engine.engine` and by whoever submits the sequences of a
request; knows neither the model nor rows.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from serve.scheduler.sequence import DecodingSequence

# What one run of the encoder costs before its first token, in tokens: fitted times gave 3 to 20 on a CPU, between a
# base Transformer in int8 and a tiny one.
BATCH_OVERHEAD_TOKENS = 16


def longest_first(sequences: Iterable[DecodingSequence]) -> list[DecodingSequence]:
    """Returns sequences in the best order to submit them if nobody waits for one but for all.

    Rows of like length need less padding and less room, and where the long ones start first, the last rows end sooner.
    """
    return sorted(sequences, key=lambda sequence: -len(sequence.source_ids))


def batches(sequences: list[DecodingSequence]) -> list[list[DecodingSequence]]:
    """Splits sequences into the batches that cost least, the shortest sources first.

    A batch of n sources, the longest of S tokens, costs BATCH_OVERHEAD_TOKENS + n S. Some best split of the sorted
    sources has every batch adjacent, so that dynamic programming finds it in O(n^2). In it, cutting off the k shortest
    of a batch saves nothing, thus their k (S - l_k) padding tokens are at most the overhead; summed over k, the padding
    of n sources is at most (1 + 1/2 + ... + 1/(n - 1)) overheads, and no batch's longest source is more than half an
    overhead above its mean.
    """
    ordered = sorted(sequences, key=lambda sequence: len(sequence.source_ids))
    costs, starts = [0], [0]  # of the best split of the n shortest: its tokens, and where its last batch starts
    for end, sequence in enumerate(ordered, 1):
        source_tokens = len(sequence.source_ids)
        cost, start = min((costs[start] + (end - start) * source_tokens, start) for start in range(end))
        costs.append(BATCH_OVERHEAD_TOKENS + cost)
        starts.append(start)
    split: list[list[DecodingSequence]] = []
    end = len(ordered)
    while end:
        split.append(ordered[starts[end] : end])
        end = starts[end]
    return split[::-1]


def pad(sequences: list[DecodingSequence], pad_id: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Lays the sources of B sequences side by side, filled up on the right to the longest, S.

    Returns:
        source ids, int64 [B, S], and source lengths, int32 [B].
    """
    source_lengths = np.array([len(sequence.source_ids) for sequence in sequences], np.int32)
    source_ids = np.full((len(sequences), int(source_lengths.max())), pad_id, np.int64)
    for row, sequence in enumerate(sequences):
        source_ids[row, : len(sequence.source_ids)] = sequence.source_ids
    return source_ids, source_lengths
