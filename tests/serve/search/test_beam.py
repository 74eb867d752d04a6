"""A step of beam search, function by function. `engine/test_search_modes` compares whole searches."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from serve.search.beam import Candidates, broken, ended, expand, place, survivors

EOS_ID = 2
INF = math.inf


def candidates_of(scores: list[float], token_ids: list[int]) -> Candidates:
    """Returns the candidates of one sequence, all from its first hypothesis, each token with score -1."""
    zeros = np.zeros((1, len(scores)), np.int64)
    return Candidates(np.array([scores]), zeros, np.array([token_ids]), zeros.astype(np.float32) - 1)


@st.composite
def expansions(draw: st.DrawFn) -> tuple[NDArray[np.float64], NDArray[np.float32], NDArray[np.int64]]:
    """Draws arguments of `expand`: scores [B, K], log-probabilities and tokens [B, K, C], with many ties."""
    sequences, beam_size = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    per_row = min(2 * beam_size, draw(st.integers(2, 9)))
    generator = np.random.default_rng(draw(st.integers(0, 10_000)))
    scores = generator.choice([-1.0, -2.0, -INF], (sequences, beam_size))
    log_probabilities = -np.sort(generator.integers(0, 4, (sequences, beam_size, per_row)), axis=2).astype(np.float32)
    token_ids = generator.permuted(np.tile(np.arange(9), (sequences, beam_size, 1)), axis=2)[:, :, :per_row]
    return scores, log_probabilities, token_ids


@given(inputs=expansions())
def test_candidates_are_the_best_expansions_in_order(
    inputs: tuple[NDArray[np.float64], NDArray[np.float32], NDArray[np.int64]],
) -> None:
    """Ties go to the better hypothesis, then to the order of the row."""
    candidates = expand(*inputs)
    for sequence, (scores, log_probabilities, token_ids) in enumerate(zip(*inputs, strict=True)):
        every = [
            (
                scores[rank] + log_probabilities[rank, place],
                rank,
                token_ids[rank, place],
                log_probabilities[rank, place],
            )
            for rank, place in np.ndindex(log_probabilities.shape)
        ]
        expected = sorted(every, key=lambda candidate: -candidate[0])[: 2 * len(scores)]
        columns = (candidates.scores, candidates.origins, candidates.token_ids, candidates.token_scores)
        assert list(zip(*(column[sequence].tolist() for column in columns), strict=True)) == expected


@given(inputs=expansions())
def test_the_first_k_candidates_that_do_not_end_survive_with_all_fields(
    inputs: tuple[NDArray[np.float64], NDArray[np.float32], NDArray[np.int64]],
) -> None:
    candidates, beam_size = expand(*inputs), inputs[0].shape[1]
    following = survivors(candidates, EOS_ID)
    for sequence, token_ids in enumerate(candidates.token_ids):
        alive = np.flatnonzero(token_ids != EOS_ID)[:beam_size]
        assert len(alive) == beam_size
        for name in Candidates._fields:
            before, after = getattr(candidates, name), getattr(following, name)
            assert after[sequence].tolist() == before[sequence, alive].tolist()


def test_a_wide_beam_stays_in_order() -> None:
    """Unstable sorting algorithms keep the order of small arrays only."""
    beam_size = 50
    token_ids = [EOS_ID if place % 3 == 0 else 10 + place for place in range(2 * beam_size)]
    following = survivors(candidates_of([-1.0] * 2 * beam_size, token_ids), EOS_ID)
    assert following.token_ids[0].tolist() == [token_id for token_id in token_ids if token_id != EOS_ID][:beam_size]


@pytest.mark.parametrize(
    ("scores", "token_ids", "expected"),
    [
        ([-1.0, -2.0, -3.0, -4.0], [EOS_ID, 4, EOS_ID, 5], [True, False, False, False]),
        ([-1.0, -2.0, -3.0, -4.0], [EOS_ID, EOS_ID, 4, 5], [True, True, False, False]),
        ([-1.0, -2.0, -3.0, -4.0], [4, 5, EOS_ID, EOS_ID], [False, False, False, False]),
        ([-1.0, -INF, -INF, -INF], [4, EOS_ID, 4, 5], [False, False, False, False]),
        ([-1.0, -2.0], [EOS_ID, 4], [True, False]),
        ([-1.0, -2.0], [4, EOS_ID], [False, False]),
    ],
)
def test_an_end_among_the_first_k_finishes_a_hypothesis_that_exists(
    scores: list[float], token_ids: list[int], expected: list[bool]
) -> None:
    assert ended(candidates_of(scores, token_ids), EOS_ID).tolist() == [expected]


@st.composite
def placements(draw: st.DrawFn) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draws rows and origins, [B, K] each."""
    sequences, beam_size = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    rows = draw(st.permutations(range(sequences * beam_size + 3)))[: sequences * beam_size]
    origin = st.lists(st.integers(0, beam_size - 1), min_size=beam_size, max_size=beam_size)
    origins = draw(st.lists(origin, min_size=sequences, max_size=sequences))
    return np.array(rows).reshape(sequences, beam_size), np.array(origins)


@given(inputs=placements())
def test_no_row_is_both_a_source_and_a_target(inputs: tuple[NDArray[np.int64], NDArray[np.int64]]) -> None:
    placement = place(*inputs)
    targets = placement.targets.tolist()
    assert len(set(targets)) == len(targets)
    assert set(placement.sources.tolist()).isdisjoint(targets)


@given(inputs=placements(), data=st.data())
def test_after_the_copies_in_any_order_every_hypothesis_finds_the_state_of_its_origin(
    inputs: tuple[NDArray[np.int64], NDArray[np.int64]], data: st.DataObject
) -> None:
    rows, origins = inputs
    placement = place(rows, origins)
    state = {row: row for row in rows.flatten().tolist()}
    copies = list(zip(placement.sources.tolist(), placement.targets.tolist(), strict=True))
    for source, target in data.draw(st.permutations(copies)):
        state[target] = state[source]
    found = [[state[row] for row in placed] for placed in placement.rows.tolist()]
    assert found == np.take_along_axis(rows, origins, axis=1).tolist()


@given(inputs=placements())
def test_a_sequence_keeps_its_rows_and_only_further_hypotheses_of_an_origin_are_copied(
    inputs: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> None:
    rows, origins = inputs
    placement = place(rows, origins)
    assert np.sort(placement.rows, axis=1).tolist() == np.sort(rows, axis=1).tolist()
    assert len(placement.sources) == sum(len(ranks) - len(set(ranks)) for ranks in origins.tolist())
    for before, after, ranks in zip(rows.tolist(), placement.rows.tolist(), origins.tolist(), strict=True):
        assert all(after[ranks.index(origin)] == before[origin] for origin in ranks)


def test_a_hypothesis_without_probabilities_breaks_its_sequence_alone_unless_it_does_not_exist() -> None:
    log_probabilities = np.full((3, 2, 3), -1.0, np.float32)
    log_probabilities[1:, 1] = np.nan
    scores = np.array([[-1.0, -2.0], [-1.0, -2.0], [-1.0, -INF]])
    assert broken(scores, log_probabilities).tolist() == [False, True, False]
    candidates = expand(scores, log_probabilities, np.zeros((3, 2, 3), np.int64))
    assert candidates.scores[[0, 2]].tolist() == [[-2.0, -2.0, -2.0, -3.0], [-2.0, -2.0, -2.0, -INF]]
