"""Batches stay within the token budget, cover every pair once per epoch, and depend on seed and step only."""

from itertools import islice, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dragoman.model.data.batches import Batch, BatchStream, TokenizedPairs, plan_batches, sorted_batches
from dragoman.model.tokenizer.tokenizer import BOS_ID, EOS_ID, PAD_ID

IDS = st.lists(st.integers(4, 99), min_size=1, max_size=20)
PAIRS = st.lists(st.tuples(IDS, IDS), min_size=1, max_size=40)
BUDGET = st.integers(1, 200)


def make_pairs(pairs: list[tuple[list[int], list[int]]]) -> TokenizedPairs:
    return TokenizedPairs([source for source, _ in pairs], [target for _, target in pairs])


def random_pairs(count: int) -> TokenizedPairs:
    """Returns distinct pairs; the first token of each is its number."""
    lengths = np.random.default_rng(1).integers(0, 12, size=(2, count))
    sources, targets = ([[100 + i, *[7] * length] for i, length in enumerate(side)] for side in lengths.tolist())
    return TokenizedPairs(sources, targets)


def content(batch: Batch) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Returns the pairs of a batch, without special tokens."""
    special = (PAD_ID, BOS_ID, EOS_ID)
    sides = [
        [tuple(token_id for token_id in row if token_id not in special) for row in side.tolist()]
        for side in (batch.source_ids, batch.target_labels)
    ]
    return list(zip(*sides, strict=True))


def expected_content(pairs: TokenizedPairs) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(tuple(source), tuple(target)) for source, target in zip(pairs.sources, pairs.targets, strict=True)]


def stream_of(pairs: TokenizedPairs, budget: int, seed: int) -> BatchStream:
    return BatchStream(lambda _epoch: pairs, budget, seed)


def take_epoch(stream: BatchStream, pairs: int) -> list[Batch]:
    """Returns batches from the first step on until they contain this many pairs."""
    batches: list[Batch] = []
    for batch in stream:
        batches.append(batch)
        if sum(len(batch.source_ids) for batch in batches) >= pairs:
            break
    return batches


def sides(batch: Batch) -> tuple[Tensor, ...]:
    return batch.source_ids, batch.target_inputs, batch.target_labels


def same(ours: list[Batch], theirs: list[Batch]) -> bool:
    return len(ours) == len(theirs) and all(
        torch.equal(a, b)
        for one, other in zip(ours, theirs, strict=True)
        for a, b in zip(sides(one), sides(other), strict=True)
    )


@given(pairs=PAIRS, budget=BUDGET, seed=st.integers(0, 3))
def test_a_batch_keeps_the_token_budget(pairs: list[tuple[list[int], list[int]]], budget: int, seed: int) -> None:
    """A single pair that exceeds it is a batch of its own."""
    for batch in take_epoch(stream_of(make_pairs(pairs), budget, seed), len(pairs)):
        rows, longest = len(batch.source_ids), max(side.shape[1] for side in sides(batch))
        assert rows * longest <= budget or rows == 1


@given(pairs=PAIRS, budget=BUDGET, seed=st.integers(0, 3))
def test_every_pair_comes_once_in_an_epoch(pairs: list[tuple[list[int], list[int]]], budget: int, seed: int) -> None:
    tokenized = make_pairs(pairs)
    batches = take_epoch(stream_of(tokenized, budget, seed), len(pairs))
    assert sorted(pair for batch in batches for pair in content(batch)) == sorted(expected_content(tokenized))


@given(pairs=PAIRS, budget=BUDGET)
def test_validation_has_each_pair_once_shortest_first(pairs: list[tuple[list[int], list[int]]], budget: int) -> None:
    tokenized = make_pairs(pairs)
    found = [pair for batch in sorted_batches(tokenized, budget) for pair in content(batch)]
    assert sorted(found) == sorted(expected_content(tokenized))
    lengths = [max(map(len, pair)) for pair in found]
    assert lengths == sorted(lengths)


@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=60).map(sorted), budget=st.integers(1, 100))
def test_a_batch_is_as_large_as_the_budget_allows(lengths: list[int], budget: int) -> None:
    """The next pair would exceed it."""
    plans = plan_batches(range(len(lengths)), np.array(lengths), budget)
    assert [index for plan in plans for index in plan] == list(range(len(lengths)))
    for plan, following in pairwise(plans):
        assert (len(plan) + 1) * lengths[following[0]] > budget


def test_the_same_seed_gives_the_same_batches() -> None:
    pairs = random_pairs(60)
    streams = [stream_of(pairs, 50, seed) for seed in (1, 1, 2)]
    ours, again, others = (list(islice(stream, 40)) for stream in streams)
    assert same(ours, again)
    assert not same(ours, others)


@pytest.mark.parametrize("step", [1, 7, 20, 61])
def test_a_stream_from_a_step_skips_the_steps_before(step: int) -> None:
    """Within an epoch and across epochs."""
    stream = stream_of(random_pairs(60), 50, seed=1)
    unbroken = list(islice(stream, step + 10))
    stream.first_batch = step
    assert same(list(islice(stream, 10)), unbroken[step:])


def growing_pairs(epoch: int) -> TokenizedPairs:
    """Returns longer pairs, and so more batches, in every epoch, as subword sampling may."""
    return TokenizedPairs([[epoch, i, *[7] * epoch] for i in range(20)], [[epoch, i] for i in range(20)])


@pytest.mark.parametrize("first", [3, 8, 30])
def test_a_resumed_stream_needs_only_the_starts_of_the_epochs(first: int) -> None:
    """It does not segment earlier epochs again."""
    unbroken = BatchStream(growing_pairs, 40, seed=1)
    expected = list(islice(unbroken, first + 5))[first:]
    requested: list[int] = []

    def pairs_of_epoch(epoch: int) -> TokenizedPairs:
        requested.append(epoch)
        return growing_pairs(epoch)

    resumed = BatchStream(pairs_of_epoch, 40, seed=1)
    resumed.epoch_starts = unbroken.epoch_starts
    resumed.first_batch = first
    assert same(list(islice(resumed, 5)), expected)
    assert all(start + 1 > first for start in unbroken.epoch_starts[requested[0] + 1 :][:1])


def test_processes_that_train_together_share_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = random_pairs(60)
    alone = list(islice(stream_of(pairs, 50, seed=1), 12))
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
    for rank in range(3):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        assert same(list(islice(stream_of(pairs, 50, seed=1), 4)), alone[rank::3])


def test_tokens_are_counted_without_padding() -> None:
    assert TokenizedPairs([[5, 6], [7]], [[8], [9, 10, 11]]).batch([0, 1]).count_tokens() == 5 + 6


def test_epochs_differ_in_the_order_and_composition_of_batches() -> None:
    pairs = random_pairs(200)
    stream = stream_of(pairs, 60, seed=1)
    first = take_epoch(stream, len(pairs))
    stream.first_batch = len(first)
    ours, theirs = ([frozenset(content(batch)) for batch in epoch] for epoch in (first, take_epoch(stream, len(pairs))))
    assert ours != theirs
    assert set(ours) != set(theirs)


def test_a_batch_holds_long_and_short_sentences_in_random_order() -> None:
    """Sorted batches would train on similar lengths in a row."""
    widths = [batch.source_ids.shape[1] for batch in take_epoch(stream_of(random_pairs(200), 60, seed=1), 200)]
    assert widths != sorted(widths)


def test_inputs_begin_and_labels_end_with_a_special_token() -> None:
    batch = TokenizedPairs([[5, 6], [7]], [[8], [9, 10, 11]]).batch([1, 0])
    assert batch.source_ids.tolist() == [[7, EOS_ID, PAD_ID], [5, 6, EOS_ID]]
    assert batch.target_inputs.tolist() == [[BOS_ID, 9, 10, 11], [BOS_ID, 8, PAD_ID, PAD_ID]]
    assert batch.target_labels.tolist() == [[9, 10, 11, EOS_ID], [8, EOS_ID, PAD_ID, PAD_ID]]


def test_the_source_tokens_of_a_label_share_its_alignment() -> None:
    """Padding, EOS and labels without links have none."""
    alignments = TokenizedPairs([[5, 6], [7]], [[8], [9, 10]], [[(0, 0), (1, 0)], [(0, 1)]]).batch([0, 1]).alignments
    assert alignments is not None
    assert alignments.tolist() == [[[0.5, 0.5, 0], [0, 0, 0], [0, 0, 0]], [[0, 0, 0], [1, 0, 0], [0, 0, 0]]]


def test_pairs_without_links_have_no_alignments() -> None:
    assert random_pairs(3).batch([0, 1]).alignments is None
    alignments = TokenizedPairs([[5]], [[6]], [[]]).batch([0]).alignments
    assert alignments is not None
    assert not alignments.any()
