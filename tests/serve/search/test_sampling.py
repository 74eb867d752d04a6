"""The choice of tokens: greedy and sampled, the random numbers, and the scores of chosen tokens."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from serve.search.options import SearchOptions
from serve.search.sampling import draw, greedy, token_scores, uniforms
from tests.support import search_reference

ALMOST_ONE = 1 - 2.0**-53
# The 0.999 quantiles of the chi-square distribution by degrees of freedom.
CHI_SQUARE_LIMITS = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47}


def draw_rows(
    logits: NDArray[np.float32],
    numbers: NDArray[np.float64],
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
) -> NDArray[np.int64]:
    """Draws with the same settings for all rows."""
    count = len(logits)
    return draw(logits, np.full(count, temperature), np.full(count, top_k), np.full(count, top_p), numbers)


def test_greedy_search_chooses_the_most_probable_token_and_of_equals_the_smallest_id() -> None:
    token_ids = greedy(np.array([[1.0, 5.0, 4.0], [-1.0, -np.inf, -2.0], [1.0, 4.0, 4.0]], np.float32))
    assert token_ids.tolist() == [1, 0, 1]
    assert token_ids.dtype == np.int64


def test_any_token_can_be_scored() -> None:
    log_probabilities = np.log(np.array([[0.2, 0.5, 0.3], [0.25, 0.25, 0.5]], np.float32))
    scores = token_scores(log_probabilities, np.array([2, 0]))
    assert np.exp(scores).tolist() == pytest.approx([0.3, 0.25])
    assert scores.dtype == np.float32


@given(seed=st.integers(0, 2**64 - 1), hypothesis=st.integers(0, 100), count=st.integers(0, 20))
def test_a_longer_series_of_numbers_begins_with_the_shorter_one(seed: int, hypothesis: int, count: int) -> None:
    longer = uniforms(seed, hypothesis, 20)
    assert uniforms(seed, hypothesis, count).tolist() == longer[:count].tolist()
    assert ((longer >= 0) & (longer < 1)).all()


def test_every_seed_and_hypothesis_has_different_numbers() -> None:
    series = {tuple(uniforms(seed, hypothesis, 3)) for seed, hypothesis in product(range(20), range(20))}
    assert len(series) == 400


def test_the_numbers_of_a_seed_never_change() -> None:
    """A recorded seed draws the same translation with a later version."""
    expected = [0.443746921343274, 0.8163920951010332, 0.5090261862073765]
    assert uniforms(42, 1, 3).tolist() == expected


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("top_k", [0, 1, 3, 40, 1000])
@pytest.mark.parametrize("top_p", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("vocabulary", [1, 2, 15, 90])
def test_the_reference_draws_the_same(temperature: float, top_k: int, top_p: float, vocabulary: int) -> None:
    generator = np.random.default_rng(vocabulary)
    logits = generator.normal(scale=3.0, size=(30, vocabulary)).astype(np.float32)
    logits[:, 1:][generator.random((30, vocabulary - 1)) < 0.2] = -np.inf
    numbers = generator.random(30)
    options = SearchOptions(max_target_tokens=1, temperature=temperature, top_k=top_k, top_p=top_p)
    token_ids = draw_rows(logits, numbers, temperature=temperature, top_k=top_k, top_p=top_p)
    rows = list(zip(logits.astype(np.float64).tolist(), numbers.tolist(), strict=True))
    assert token_ids.tolist() == [search_reference.draw(row, options, number) for row, number in rows]


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "expected"),
    [
        (1.0, 0, 1.0, [0.1, 0.4, 0.05, 0.25, 0.2]),
        (0.5, 0, 1.0, [0.01, 0.16, 0.0025, 0.0625, 0.04]),
        (1.0, 3, 1.0, [0.0, 0.4, 0.0, 0.25, 0.2]),
        (1.0, 0, 0.7, [0.0, 0.4, 0.0, 0.25, 0.2]),
        (1.0, 4, 0.6, [0.0, 0.4, 0.0, 0.25, 0.0]),
        (0.5, 0, 0.8, [0.0, 0.16, 0.0, 0.0625, 0.0]),
    ],
)
def test_tokens_are_drawn_by_their_probability(
    temperature: float, top_k: int, top_p: float, expected: list[float]
) -> None:
    count = 20_000
    logits = np.tile(np.log(np.array([0.1, 0.4, 0.05, 0.25, 0.2], np.float32)), (count, 1))
    numbers = uniforms(7, 0, count)
    token_ids = draw_rows(logits, numbers, temperature=temperature, top_k=top_k, top_p=top_p)
    counts = np.bincount(token_ids, minlength=5)
    wanted = np.array(expected) / sum(expected) * count
    possible = wanted > 0
    assert (counts[~possible] == 0).all()
    chi_square = ((counts[possible] - wanted[possible]) ** 2 / wanted[possible]).sum()
    assert chi_square < CHI_SQUARE_LIMITS[int(possible.sum()) - 1]


@pytest.mark.parametrize(
    ("probabilities", "options", "expected"),
    [
        # Top-p keeps the token that crosses the threshold.
        ([0.2, 0.5, 0.3], {"top_p": 0.0}, [1]),
        ([0.2, 0.5, 0.3], {"top_p": 0.49}, [1]),
        ([0.2, 0.5, 0.3], {"top_p": 0.51}, [1, 2]),
        ([0.2, 0.5, 0.3], {"top_p": 0.79}, [1, 2]),
        ([0.2, 0.5, 0.3], {"top_p": 0.81}, [0, 1, 2]),
        ([0.2, 0.5, 0.3], {"top_p": 1.0}, [0, 1, 2]),
        # Tokens that reach the threshold exactly are enough.
        ([0.25] * 4, {"top_p": 0.5}, [0, 1]),
        # Ties keep the lower ids, below tokens that are more probable and without any.
        ([0.1, 0.3, 0.3, 0.3], {"top_k": 1}, [1]),
        ([0.1, 0.3, 0.3, 0.3], {"top_k": 2}, [1, 2]),
        ([0.1, 0.3, 0.3, 0.3], {"top_k": 4}, [0, 1, 2, 3]),
        ([0.2, 0.2, 0.4, 0.2], {"top_k": 2}, [0, 2]),
        ([0.1, 0.3, 0.3, 0.3], {"top_p": 0.5}, [1, 2]),
        ([0.2, 0.2, 0.4, 0.2], {"top_p": 0.5}, [0, 2]),
        # Top-p is a share of what top-k kept: 0.4 has a share of 0.57 of 0.4 and 0.3.
        ([0.3, 0.4, 0.2, 0.1], {"top_k": 2, "top_p": 0.5}, [1]),
        ([0.3, 0.4, 0.2, 0.1], {"top_p": 0.5}, [0, 1]),
        # The temperature comes before top-p.
        ([0.5, 0.3, 0.2], {"temperature": 0.2, "top_p": 0.8}, [0]),
    ],
)
def test_top_k_and_top_p_keep_the_most_probable_tokens(
    probabilities: list[float], options: dict[str, Any], expected: list[int]
) -> None:
    """Draws with 1,000 numbers from 0 to almost 1."""
    logits = np.tile(np.log(np.array(probabilities, np.float32)), (1001, 1))
    token_ids = draw_rows(logits, np.minimum(np.arange(1001) / 1000, ALMOST_ONE), **options)
    assert sorted(set(token_ids.tolist())) == expected


@pytest.mark.parametrize("number", [0.0, 0.5, ALMOST_ONE])
def test_an_impossible_token_is_never_drawn(number: float) -> None:
    logits = np.array([[-np.inf, 0.0, -np.inf, 1.0, -np.inf]], np.float32)
    for top_k, top_p in product([0, 1, 4, 5], [0.0, 0.5, 1.0]):
        token_ids = draw_rows(logits, np.array([number]), top_k=top_k, top_p=top_p)
        assert token_ids[0] in (1, 3)


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-40, 1e-3])
def test_at_low_temperatures_the_most_probable_token_is_drawn(temperature: float) -> None:
    logits = np.random.default_rng(3).normal(scale=3.0, size=(20, 100)).astype(np.float32)
    token_ids = draw_rows(logits, np.linspace(0, ALMOST_ONE, 20), temperature=temperature, top_p=0.9)
    assert token_ids.tolist() == greedy(logits).tolist()


def test_at_high_temperatures_all_tokens_are_equal() -> None:
    logits = np.tile(np.array([30.0, 0.0, -30.0, 10.0], np.float32), (4, 1))
    token_ids = draw_rows(logits, np.array([0.1, 0.3, 0.6, 0.9]), temperature=1e300)
    assert token_ids.tolist() == [0, 1, 2, 3]


def mixed(rows: int, vocabulary: int) -> tuple[NDArray[Any], ...]:
    """Returns arguments for `draw` with all kinds of settings."""
    generator = np.random.default_rng(rows + vocabulary)
    return (
        generator.normal(scale=3.0, size=(rows, vocabulary)).astype(np.float32),
        generator.choice([0.2, 1.0, 3.0], rows),
        generator.choice([0, 1, 10, 2 * vocabulary], rows),
        generator.choice([0.0, 0.5, 0.9, 1.0], rows),
        generator.random(rows),
    )


@pytest.mark.parametrize("vocabulary", [1, 37, 1000, 8191])
def test_a_row_draws_the_same_alone_and_among_others(vocabulary: int) -> None:
    arguments = mixed(40, vocabulary)
    alone = [int(draw(*(column[[row]] for column in arguments))[0]) for row in range(40)]
    for rows in (2, 7, 40):
        assert draw(*(column[:rows] for column in arguments)).tolist() == alone[:rows]


def test_a_wider_neighbor_changes_nothing_where_sums_round() -> None:
    """The threshold is so near 1 that the probable tokens of the first row miss it only by rounding."""
    half = 2048
    improbable, probable = np.full(half, -36.0), np.random.default_rng(2).normal(size=half)
    logits = np.stack([np.concatenate([improbable, probable]), np.zeros(2 * half)]).astype(np.float32)
    alone = draw_rows(logits[:1], np.zeros(1), top_p=1 - 1e-15)
    among = draw_rows(logits, np.zeros(2), top_p=1 - 1e-15)
    assert alone[0] == among[0] == half


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("whole_row", [True, False])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (5, 1.0), (0, 0.9), (5, 0.9)])
def test_a_row_without_probabilities_does_not_change_its_neighbors(
    value: float, whole_row: bool, top_k: int, top_p: float
) -> None:
    healthy, *_ = mixed(3, 50)
    among = healthy.copy()
    among[1, slice(None) if whole_row else 20] = value
    numbers = np.array([0.1, 0.5, 0.9])
    token_ids = draw_rows(among, numbers, top_k=top_k, top_p=top_p)
    expected = draw_rows(healthy, numbers, top_k=top_k, top_p=top_p)
    assert token_ids[[0, 2]].tolist() == expected[[0, 2]].tolist()


def test_drawing_does_not_change_the_logits() -> None:
    arguments = mixed(10, 9)
    before = arguments[0].copy()
    draw(*arguments)
    assert (arguments[0] == before).all()
