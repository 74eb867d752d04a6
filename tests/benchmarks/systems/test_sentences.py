"""Sentences, their batches, and runs that translate them."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.systems import translating
from benchmarks.systems.translating import Batching, SourceSentence, batches, draw_sentences, spread, write_sentences

EOS_ID = 3
EIGHT = Batching(8, "examples")
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
def test_a_sentence_is_in_one_batch_of_its_size_and_limits(sentences: list[SourceSentence], batching: Batching) -> None:
    made = batches(sentences, batching)
    assert sorted(number for batch in made for number in batch) == list(range(len(sentences)))
    for batch in made:
        padded = max(len(sentences[number].source_ids) for number in batch) if batching.unit == "tokens" else 1
        assert len(batch) == 1 or len(batch) * padded <= batching.size
        assert len({sentences[number].limits for number in batch}) == 1


def test_similar_lengths_share_a_batch() -> None:
    sentences = [SourceSentence((5,) * length, 0, 9) for length in (1, 8, 2, 7)]
    assert batches(sentences, Batching(2, "examples")) == [[1, 3], [2, 0]]


def test_a_group_has_all_sentences_of_its_limits_in_their_order() -> None:
    sentences = [SourceSentence((5,), target, target) for target in (3, 9, 3)]
    assert translating.groups(sentences) == [[1], [0, 2]]


def test_random_sentences_have_the_requested_lengths_end_in_eos_and_are_reproducible() -> None:
    lengths = [(4, 7), (1, 2), (9, 1)]
    sentences = draw_sentences(1, lengths, 50, EOS_ID)
    assert [(len(sentence.source_ids), *sentence.limits) for sentence in sentences] == [(4, 7, 7), (1, 2, 2), (9, 1, 1)]
    assert [sentence.source_ids[-1] for sentence in sentences] == [EOS_ID] * 3
    assert all(4 <= token_id < 50 for sentence in sentences for token_id in sentence.source_ids[:-1])
    assert draw_sentences(1, lengths, 50, EOS_ID) == sentences != draw_sentences(2, lengths, 50, EOS_ID)


def test_chosen_sentences_are_spread_over_all() -> None:
    sentences = [SourceSentence((number, 3), 0, 9) for number in range(10)]
    assert [sentence.source_ids[0] for sentence in spread(sentences, 4)] == [0, 2, 5, 7]
    assert spread(sentences, 20) == sentences


class Repeater(translating.Translator):
    """Translates each source into itself, and records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, Batching]] = []

    def translate(self, sentences: Sequence[SourceSentence], beam_size: int, batching: Batching) -> list[Sequence[int]]:
        self.calls.append((len(sentences), beam_size, batching))
        return [sentence.source_ids for sentence in sentences]


@pytest.mark.parametrize(
    ("alone", "warm_up", "work"),
    [(None, [(3, 4, EIGHT)], [(20, 4, EIGHT)]), (4, [(1, 4, EIGHT)] * 2, [(1, 4, EIGHT)] * 4)],
)
def test_a_run_translates_all_or_some_sentences_after_a_warm_up(
    alone: int | None, warm_up: list[tuple[int, int, Batching]], work: list[tuple[int, int, Batching]], tmp_path: Path
) -> None:
    write_sentences(tmp_path / "sentences.json", [SourceSentence((number, 3), 0, 9) for number in range(20)])
    repeater, output = Repeater(), tmp_path / "output.json"
    files = {"sentences": str(tmp_path / "sentences.json"), "output": str(output)}
    run = repeater.prepare(**files, beam_size=4, batching="8:examples", alone=alone)
    assert repeater.calls == warm_up
    assert run() == 2 * (alone or 20)
    assert repeater.calls == warm_up + work
    assert json.loads(output.read_bytes()) == [[number, 3] for number in range(0, 20, 20 // (alone or 20))]
