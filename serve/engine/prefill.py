"""Groups sequences by length into encoder batches with little padding."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.engine.running import RunningSequence
from dragoman.serve.scheduler.sequence import DecodingSequence

# The most padding of a batch in tokens: about what a further run of the encoder costs.
PADDING_TOKENS = 16


def longest_first(sequences: Iterable[DecodingSequence]) -> list[DecodingSequence]:
    """Sorts longest first, which minimizes the makespan of sequences that are awaited together.

    Rows of similar length also need less padding and less memory.
    """
    return sorted(sequences, key=lambda sequence: -len(sequence.source_ids))


def batches(starting: Iterable[RunningSequence]) -> list[list[RunningSequence]]:
    """Splits sequences into batches of at most `PADDING_TOKENS` tokens of padding, the longest sources first."""
    split: list[list[RunningSequence]] = []
    padding = 0
    for running in sorted(starting, key=lambda item: -item.source_tokens):
        if split:
            padding += split[-1][0].source_tokens - running.source_tokens
        if not split or padding > PADDING_TOKENS:
            split.append([])
            padding = 0
        split[-1].append(running)
    return split


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
