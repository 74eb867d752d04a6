"""Sampled tokens and the random numbers that decide them."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dragoman.serve.search.options import SearchOptions
from dragoman.serve.search.sampling import draw, uniforms
from tests.support import search_reference
from tests.support.cases import cases

CASES = cases(__file__)

ALMOST_ONE = 1 - 2.0**-53
# The 0.999 quantiles of the chi-square distribution by degrees of freedom.
CHI_SQUARE_LIMITS = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47}


def draw_rows(logits: NDArray[np.float32], numbers: NDArray[np.float64], **options: Any) -> NDArray[np.int64]:
    """Draws with the same settings for all rows."""
    chosen: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, **options}
    return np.array([draw(row, number=number, **chosen) for row, number in zip(logits, numbers.tolist(), strict=True)])


@given(seed=st.integers(0, 2**64 - 1), hypothesis=st.integers(0, 100), count=st.integers(0, 20))
def test_a_longer_series_of_numbers_begins_with_the_shorter_one(seed: int, hypothesis: int, count: int) -> None:
    longer = uniforms(seed, hypothesis, 20)
    assert uniforms(seed, hypothesis, count).tolist() == longer[:count].tolist()
    assert ((longer >= 0) & (longer < 1)).all()


def test_every_seed_and_hypothesis_has_different_numbers() -> None:
    assert len({tuple(uniforms(seed, hypothesis, 3)) for seed, hypothesis in product(range(20), range(20))}) == 400


def test_the_numbers_of_a_seed_never_change() -> None:
    """A recorded seed draws the same translation with a later version."""
    assert uniforms(42, 1, 3).tolist() == [0.443746921343274, 0.8163920951010332, 0.5090261862073765]


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


@pytest.mark.parametrize(("temperature", "top_k", "top_p", "expected"), CASES["tokens are drawn by probability"])
def test_tokens_are_drawn_by_probability(temperature: float, top_k: int, top_p: float, expected: list[float]) -> None:
    count = 5_000
    logits = np.tile(np.log(np.array([0.1, 0.4, 0.05, 0.25, 0.2], np.float32)), (count, 1))
    token_ids = draw_rows(logits, uniforms(7, 0, count), temperature=temperature, top_k=top_k, top_p=top_p)
    counts = np.bincount(token_ids, minlength=5)
    wanted = np.array(expected) / sum(expected) * count
    possible = wanted > 0
    assert (counts[~possible] == 0).all()
    chi_square = ((counts[possible] - wanted[possible]) ** 2 / wanted[possible]).sum()
    assert chi_square < CHI_SQUARE_LIMITS[int(possible.sum()) - 1]


@pytest.mark.parametrize(
    ("probabilities", "options", "expected"), CASES["top k and top p keep the most probable tokens"]
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
        assert draw_rows(logits, np.array([number]), top_k=top_k, top_p=top_p)[0] in (1, 3)


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-40, 1e-3])
def test_at_low_temperatures_the_most_probable_token_is_drawn(temperature: float) -> None:
    logits = np.random.default_rng(3).normal(scale=3.0, size=(20, 100)).astype(np.float32)
    token_ids = draw_rows(logits, np.linspace(0, ALMOST_ONE, 20), temperature=temperature, top_p=0.9)
    assert token_ids.tolist() == logits.argmax(axis=1).tolist()


def test_at_high_temperatures_all_tokens_are_equal() -> None:
    logits = np.tile(np.array([30.0, 0.0, -30.0, 10.0], np.float32), (4, 1))
    assert draw_rows(logits, np.array([0.1, 0.3, 0.6, 0.9]), temperature=1e300).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("logits", [[np.nan] * 9, [0.0, np.nan, 1.0], [0.0, np.inf, 1.0], [-np.inf] * 9])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (2, 1.0), (0, 0.9), (2, 0.9)])
def test_logits_without_probabilities_draw_some_token(logits: list[float], top_k: int, top_p: float) -> None:
    """Its score is no number, which ends the sequence."""
    assert draw(np.array(logits, np.float32), 1.0, top_k, top_p, 0.5) == 0


def test_drawing_does_not_change_the_logits() -> None:
    logits = np.random.default_rng(1).normal(size=9).astype(np.float32)
    before = logits.copy()
    draw(logits, 0.5, 3, 0.9, 0.5)
    assert (logits == before).all()
