"""Groups sequences by length into encoder batches with little padding.

Every batch costs a fixed time, and every padding token costs time without effect. The split into batches minimizes
the sum of both.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from serve.scheduler.sequence import DecodingSequence

# Fixed cost of an encoder run, in tokens. Fits on a CPU gave 3 to 20, for base (int8) and tiny Transformers.
BATCH_OVERHEAD_TOKENS = 16


def longest_first(sequences: Iterable[DecodingSequence]) -> list[DecodingSequence]:
    """Sorts longest first, which minimizes the makespan of sequences that are awaited together.

    Rows of similar length also need less padding and less memory.
    """
    return sorted(sequences, key=lambda sequence: -len(sequence.source_ids))


def batches(sequences: list[DecodingSequence]) -> list[list[DecodingSequence]]:
    """Splits sequences into the batches of least total cost, the shortest sources first.

    A batch of n sources, the longest of S tokens, costs BATCH_OVERHEAD_TOKENS + n S. An optimal split of the sorted
    sources has contiguous batches, so dynamic programming finds it in O(n^2).

    Bound: splitting off the k shortest of a batch saves nothing, so their padding k (S - l_k) is at most one overhead.
    Summed over k, the padding of n sources is at most (1 + 1/2 + ... + 1/(n - 1)) overheads. No batch's longest source
    is more than half an overhead above its mean.
    """
    ordered = sorted(sequences, key=lambda sequence: len(sequence.source_ids))
    costs, starts = [0], [0]  # of the best split of the n shortest: its cost in tokens, and the start of its last batch
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


def pad(sources: Sequence[tuple[int, ...]], pad_id: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Pads B sources on the right to the length of the longest, S.

    Returns:
        source ids, int64 [B, S], and source lengths, int32 [B].
    """
    source_lengths = np.array([len(source) for source in sources], np.int32)
    source_ids = np.full((len(sources), int(source_lengths.max())), pad_id, np.int64)
    for row, source in enumerate(sources):
        source_ids[row, : len(source)] = source
    return source_ids, source_lengths
