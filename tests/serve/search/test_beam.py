"""A step of beam search, function by function. `engine/test_search_modes` compares whole searches."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.search.beam import Candidate, Placement, ended, expand, place, survivors
from dragoman.serve.search.live import LiveHypothesis, Token

EOS_ID = 2
INF = math.inf


def candidates_of(token_ids: list[int]) -> list[Candidate]:
    return [Candidate(-1.0, LiveHypothesis(0), Token(token_id, -1.0)) for token_id in token_ids]


@st.composite
def expansions(draw: st.DrawFn) -> tuple[list[LiveHypothesis], list[list[Token]]]:
    """Draws a beam and the best tokens of its hypotheses, with many ties."""
    beam_size = draw(st.integers(1, 4))
    scores = draw(st.lists(st.sampled_from([-1.0, -2.0]), min_size=beam_size, max_size=beam_size))
    token_scores = st.lists(st.sampled_from([0.0, -1.0, -2.0, -INF]), min_size=2 * beam_size, max_size=2 * beam_size)
    tokens = [
        [
            Token(token_id, score)
            for token_id, score in zip(
                draw(st.permutations(range(2 * beam_size))), sorted(draw(token_scores), reverse=True), strict=True
            )
        ]
        for _ in range(beam_size)
    ]
    return [LiveHypothesis(row, score=score) for row, score in enumerate(scores)], tokens


@given(inputs=expansions())
def test_candidates_are_the_best_expansions_in_order(inputs: tuple[list[LiveHypothesis], list[list[Token]]]) -> None:
    """Ties go to the better hypothesis, then to the order of its tokens; impossible tokens are left out."""
    beam, tokens = inputs
    every = [
        (origin.score + token.score, rank, token)
        for rank, (origin, best) in enumerate(zip(beam, tokens, strict=True))
        for token in best
        if token.score > -INF
    ]
    expected = sorted(every, key=lambda candidate: -candidate[0])[: 2 * len(beam)]
    assert [(item.score, item.origin.row, item.token) for item in expand(beam, tokens, len(beam))] == expected


@pytest.mark.parametrize("beam_size", [1, 2, 50])
def test_the_first_k_candidates_that_do_not_end_survive_in_order(beam_size: int) -> None:
    token_ids = [EOS_ID if place % 3 == 0 else 10 + place for place in range(2 * beam_size)]
    following = survivors(candidates_of(token_ids), beam_size, EOS_ID)
    expected = [token_id for token_id in token_ids if token_id != EOS_ID][:beam_size]
    assert [item.token.token_id for item in following] == expected


@pytest.mark.parametrize(
    ("token_ids", "count"),
    [([EOS_ID, 4, EOS_ID, 5], 1), ([EOS_ID, EOS_ID, 4, 5], 2), ([4, 5, EOS_ID, EOS_ID], 0), ([EOS_ID], 1), ([], 0)],
)
def test_an_end_among_the_first_k_finishes_a_hypothesis(token_ids: list[int], count: int) -> None:
    assert ended(candidates_of(token_ids), 2, EOS_ID) == candidates_of([EOS_ID] * count)


@st.composite
def placements(draw: st.DrawFn) -> tuple[list[int], list[Candidate]]:
    """Draws the rows of a sequence and survivors, of which several may have one origin."""
    beam_size = draw(st.integers(1, 6))
    rows = draw(st.permutations(range(beam_size + 3)))[:beam_size]
    live = [LiveHypothesis(row, tokens=(Token(9, -1.0),)) for row in draw(st.permutations(rows))]
    live = live[: draw(st.integers(1, beam_size))]
    origins = draw(st.lists(st.sampled_from(live), min_size=1, max_size=beam_size))
    return rows, [Candidate(-1.0, origin, Token(7, -1.0)) for origin in origins]


def placed(inputs: tuple[list[int], list[Candidate]]) -> Placement:
    rows, following = inputs
    return place(following, rows)


@given(inputs=placements())
def test_no_row_is_both_a_source_and_a_target(inputs: tuple[list[int], list[Candidate]]) -> None:
    branches = placed(inputs).branches
    targets = [branch.target for branch in branches]
    assert len(set(targets)) == len(targets)
    assert {branch.source for branch in branches}.isdisjoint(targets)


@given(inputs=placements(), data=st.data())
def test_after_the_copies_in_any_order_every_hypothesis_finds_the_state_of_its_origin(
    inputs: tuple[list[int], list[Candidate]], data: st.DataObject
) -> None:
    rows, following = inputs
    placement = placed(inputs)
    state = {row: row for row in rows}
    for branch in data.draw(st.permutations(placement.branches)):
        assert branch.positions == 2, "the begin token and one more"
        state[branch.target] = state[branch.source]
    assert [state[origin.row] for origin in placement.origins] == [item.origin.row for item in following]


@given(inputs=placements())
def test_only_further_hypotheses_of_an_origin_are_copied(inputs: tuple[list[int], list[Candidate]]) -> None:
    rows, following = inputs
    placement = placed(inputs)
    taken = [origin.row for origin in placement.origins]
    assert len(set(taken)) == len(taken)
    assert set(taken) <= set(rows)
    assert len(placement.branches) == len(following) - len({item.origin.row for item in following})
