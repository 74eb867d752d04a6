"""Every sentence is in exactly one batch, no batch is too large, and its sentences share their limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.systems.translating import Batching, SourceSentence, batches, groups

SENTENCES = st.lists(
    st.builds(
        lambda length, target: SourceSentence((5,) * length, target, target),
        st.integers(min_value=1, max_value=20),
        st.integers(min_value=1, max_value=3),
    ),
    max_size=40,
)
BATCHINGS = st.builds(Batching, st.integers(min_value=1, max_value=60), st.sampled_from(["examples", "tokens"]))


@given(SENTENCES, BATCHINGS)
def test_every_sentence_is_in_one_batch(sentences: list[SourceSentence], batching: Batching) -> None:
    made = batches(sentences, batching)
    assert sorted(number for batch in made for number in batch) == list(range(len(sentences)))


@given(SENTENCES, BATCHINGS)
def test_no_batch_of_several_sentences_is_too_large(sentences: list[SourceSentence], batching: Batching) -> None:
    for batch in batches(sentences, batching):
        padded = max(len(sentences[number].source_ids) for number in batch) if batching.unit == "tokens" else 1
        assert len(batch) == 1 or len(batch) * padded <= batching.size


@given(SENTENCES, BATCHINGS)
def test_sentences_of_one_batch_share_their_limits(sentences: list[SourceSentence], batching: Batching) -> None:
    assert all(len({sentences[number].limits for number in batch}) == 1 for batch in batches(sentences, batching))


def test_similar_lengths_share_a_batch() -> None:
    sentences = [SourceSentence((5,) * length, 0, 9) for length in (1, 8, 2, 7)]
    assert batches(sentences, Batching(2, "examples")) == [[1, 3], [2, 0]]


def test_a_group_has_all_sentences_of_its_limits_in_their_order() -> None:
    sentences = [SourceSentence((5,), target, target) for target in (3, 9, 3)]
    assert groups(sentences) == [[1], [0, 2]]


@given(BATCHINGS)
def test_a_batching_is_read_as_it_is_written(batching: Batching) -> None:
    assert Batching.parse(str(batching)) == batching


@pytest.mark.parametrize("text", ["", "64", "0:examples", "64:lines", "64:examples ", "-1:rows", "²:rows"])
def test_an_invalid_batching_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a size and a unit"):
        Batching.parse(text)
