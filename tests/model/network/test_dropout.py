"""Dropout drops each unit with the configured probability and keeps the expectation."""

import pytest
import torch

from dragoman.model.network.layers import Dropout, random_bytes

UNITS = 400_000


@pytest.mark.parametrize("probability", [0.1, 0.2, 0.5, 0.9])
def test_units_are_dropped_with_the_probability_rounded_to_a_256th(probability: float) -> None:
    torch.manual_seed(1)
    dropped = (Dropout(probability)(torch.ones(UNITS)) == 0).float().mean()
    expected = round(256 * probability) / 256
    deviation = (expected * (1 - expected) / UNITS) ** 0.5
    assert abs(float(dropped) - expected) < 5 * deviation


@pytest.mark.parametrize("probability", [0.001, 0.1, 0.3, 0.999])
def test_the_expectation_is_that_of_the_input(probability: float) -> None:
    """Exactly: the kept values are scaled by the probability of being kept."""
    torch.manual_seed(2)
    states = Dropout(probability)(torch.full((UNITS,), 3.0))
    kept_share = 1 - min(round(256 * probability), 255) / 256
    torch.testing.assert_close(states[states != 0].unique(), torch.tensor([3.0 / kept_share]))


def test_every_byte_of_a_draw_is_uniform() -> None:
    """Without a lower bound the sign bit is fixed, and one byte of eight would drop twice as often."""
    torch.manual_seed(3)
    values = random_bytes(8 * 32768).view(-1, 8)
    for place in range(8):
        counts = values[:, place].to(torch.int64).bincount(minlength=256)
        # Chi-squared with 255 degrees of freedom: 5 standard deviations above its mean.
        assert float(((counts - 128) ** 2 / 128).sum()) < 255 + 5 * (2 * 255) ** 0.5


@pytest.mark.parametrize("shape", [(1,), (7,), (8,), (9,), (3, 5, 11), (0, 4)])
def test_any_shape_is_taken(shape: tuple[int, ...]) -> None:
    assert Dropout(0.5)(torch.ones(shape)).shape == shape


def test_a_view_with_strides_is_taken() -> None:
    dropped = Dropout(0.5)(torch.ones(4, 6).T)
    assert dropped.shape == (6, 4)
    assert set(dropped.unique().tolist()) <= {0.0, 2.0}


def test_what_is_dropped_gets_no_gradient_and_the_rest_a_scaled_one() -> None:
    states = torch.ones(1000, requires_grad=True)
    dropped = Dropout(0.25)(states)
    dropped.sum().backward()
    assert states.grad is not None
    assert torch.equal(states.grad, dropped.detach())


def test_the_same_seed_drops_the_same() -> None:
    dropout, states = Dropout(0.3), torch.ones(100)
    torch.manual_seed(4)
    first = dropout(states)
    assert not torch.equal(dropout(states), first)
    torch.manual_seed(4)
    assert torch.equal(dropout(states), first)


def test_nothing_is_dropped_outside_training_or_without_probability() -> None:
    states = torch.randn(100)
    assert Dropout(0.5).eval()(states) is states
    assert Dropout(0.0)(states) is states


def test_the_type_of_the_states_stays() -> None:
    assert Dropout(0.5)(torch.ones(8, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_share_of_the_probability_drops_so_many_fewer_units(share: float) -> None:
    torch.manual_seed(1)
    dropout = Dropout(0.5).train()
    dropout.share = share
    assert (dropout(torch.ones(200_000)) == 0).float().mean().item() == pytest.approx(0.5 * share, abs=0.01)
