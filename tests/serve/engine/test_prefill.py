"""Encoder batches: every sequence once, little padding."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.engine.running import PADDING_TOKENS, RunningSequence, batches, pad
from dragoman.serve.scheduler.sequence import DecodingSequence, SequenceGroup, longest_first
from dragoman.serve.search.options import SearchOptions

PAD_ID = 0


def make_sequence(tokens: int) -> DecodingSequence:
    return DecodingSequence(tuple(range(1, tokens + 1)), SearchOptions(max_target_tokens=1), SequenceGroup(print))


@given(st.lists(st.integers(1, 80), max_size=40))
def test_every_sequence_is_in_one_batch_with_little_padding_and_the_longest_come_first(lengths: list[int]) -> None:
    starting = [RunningSequence(make_sequence(length), [row]) for row, length in enumerate(lengths)]
    split = batches(starting)
    assert [entry.source_tokens for batch in split for entry in batch] == sorted(lengths, reverse=True)
    assert sorted(id(entry) for batch in split for entry in batch) == sorted(map(id, starting))
    for batch in split:
        assert sum(batch[0].source_tokens - entry.source_tokens for entry in batch) <= PADDING_TOKENS
    for batch, following in pairwise(split):
        longer = [*batch, following[0]]
        assert sum(batch[0].source_tokens - item.source_tokens for item in longer) > PADDING_TOKENS


def test_a_batch_is_padded_on_the_right() -> None:
    source_ids, source_lengths = pad([(1, 2), (1, 2, 3, 4)], PAD_ID)
    assert source_ids.dtype == np.int64
    assert source_lengths.dtype == np.int32
    assert source_ids.tolist() == [[1, 2, PAD_ID, PAD_ID], [1, 2, 3, 4]]
    assert source_lengths.tolist() == [2, 4]


def test_the_longest_comes_first_and_ties_stay_in_order() -> None:
    sequences = [make_sequence(length) for length in (2, 5, 1, 5, 2)]
    assert longest_first(sequences) == [sequences[place] for place in (1, 3, 0, 4, 2)]
