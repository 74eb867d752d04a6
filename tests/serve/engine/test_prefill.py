"""Encoder batches: every sequence once, little padding, and the cheapest split."""

from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from serve.engine.prefill import BATCH_OVERHEAD_TOKENS, batches, longest_first, pad
from serve.scheduler.sequence import DecodingSequence
from serve.search.options import SearchOptions

PAD_ID = 0


def make_sequence(source_tokens: int) -> DecodingSequence:
    return DecodingSequence(
        tuple(range(1, source_tokens + 1)), SearchOptions(max_target_tokens=1), None, lambda _: None
    )


def lengths_of(split: list[list[DecodingSequence]]) -> list[list[int]]:
    return [[len(sequence.source_ids) for sequence in batch] for batch in split]


def cost(split: list[list[int]]) -> int:
    return sum(BATCH_OVERHEAD_TOKENS + len(lengths) * max(lengths) for lengths in split)


def partitions(lengths: list[int]) -> Iterator[list[list[int]]]:
    """Yields every partition of the lengths into batches, contiguous or not."""
    if not lengths:
        yield []
        return
    first, *rest = lengths
    for split in partitions(rest):
        yield [[first], *split]
        for index, batch in enumerate(split):
            yield [*split[:index], [first, *batch], *split[index + 1 :]]


@given(st.lists(st.integers(1, 80), max_size=40))
def test_every_sequence_is_in_one_batch_and_the_shortest_come_first(lengths: list[int]) -> None:
    sequences = [make_sequence(length) for length in lengths]
    split = batches(sequences)
    assert sorted(map(id, (sequence for batch in split for sequence in batch))) == sorted(map(id, sequences))
    assert [length for batch in lengths_of(split) for length in batch] == sorted(lengths)
    assert all(split)


@given(st.lists(st.integers(1, 80), min_size=1, max_size=7))
def test_no_split_costs_less(lengths: list[int]) -> None:
    split = lengths_of(batches([make_sequence(length) for length in lengths]))
    assert cost(split) == min(cost(other) for other in partitions(lengths))


def test_a_batch_is_padded_on_the_right() -> None:
    source_ids, source_lengths = pad([(1, 2), (1, 2, 3, 4)], PAD_ID)
    assert source_ids.dtype == np.int64
    assert source_lengths.dtype == np.int32
    assert source_ids.tolist() == [[1, 2, PAD_ID, PAD_ID], [1, 2, 3, 4]]
    assert source_lengths.tolist() == [2, 4]


def test_the_longest_comes_first_and_ties_stay_in_order() -> None:
    sequences = [make_sequence(length) for length in (2, 5, 1, 5, 2)]
    assert longest_first(sequences) == [sequences[place] for place in (1, 3, 0, 4, 2)]
