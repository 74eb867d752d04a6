"""Hard attention: sampling, the REINFORCE loss, and a single position in the trained model."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from dragoman.model.network import alignment
from dragoman.model.network.alignment import PositionSampler, Reinforce, SampledDecode
from dragoman.model.network.recurrent import Recurrent
from tests.support.recurrent_models import VOCABULARY, ragged_ids, random_ids, random_recurrent

WEIGHTS = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.9, 0.0], [1.0, 0.0, 0.0]])


def hard_model() -> Recurrent:
    return random_recurrent(attention="additive", hard=True)


def sampled(log_probabilities: Tensor, entropies: Tensor) -> SampledDecode:
    return SampledDecode(torch.zeros(*entropies.shape, 1), log_probabilities, entropies)


def test_positions_are_sampled_as_often_as_they_are_probable() -> None:
    torch.manual_seed(1)
    sampler = PositionSampler(torch.zeros(3, dtype=torch.bool))
    shares = torch.stack([sampler(WEIGHTS) for _ in range(2000)]).mean(dim=0)
    torch.testing.assert_close(shares, WEIGHTS, atol=0.05, rtol=0)
    assert torch.equal(shares == 0, WEIGHTS == 0)


def test_a_sample_comes_with_its_log_probability_and_the_entropy_of_its_distribution() -> None:
    sampler = PositionSampler(torch.zeros(3, dtype=torch.bool))
    for _ in range(20):
        chosen = sampler(WEIGHTS).bool()
        torch.testing.assert_close(sampler.log_probabilities[-1], WEIGHTS[chosen].log())
        entropies = [-sum(p * math.log(p) for p in row if p) for row in WEIGHTS.tolist()]
        torch.testing.assert_close(sampler.entropies[-1], torch.tensor(entropies))


def test_soft_rows_keep_their_weights_and_get_no_reinforcement() -> None:
    sampler = PositionSampler(torch.tensor([True, False, True]))
    weights = sampler(WEIGHTS)
    assert torch.equal(weights[[0, 2]], WEIGHTS[[0, 2]])
    assert set(weights[1].tolist()) == {0.0, 1.0}
    assert sampler.log_probabilities[0][[0, 2]].tolist() == [0, 0]


def test_impossible_positions_have_a_finite_gradient() -> None:
    scores = torch.tensor([[1.0, -torch.inf]], requires_grad=True)
    sampler = PositionSampler(torch.tensor([False]))
    sampler(scores.softmax(dim=-1))
    (gradient,) = torch.autograd.grad((sampler.log_probabilities[0] + sampler.entropies[0]).sum(), scores)
    assert gradient.isfinite().all()


def test_the_loss_follows_its_formula() -> None:
    """Padding is ignored."""
    rewards, log_probabilities, entropies = (torch.randn(2, 3) for _ in range(3))
    valid = torch.tensor([[True, True, False], [True, True, True]])
    reinforce = Reinforce()
    reinforce.baseline.fill_(-0.4)
    loss = reinforce(rewards, sampled(log_probabilities, entropies), valid)
    terms = [
        -(alignment.REWARD_WEIGHT * (reward + 0.4) * log_probability + alignment.ENTROPY_WEIGHT * entropy)
        for reward, log_probability, entropy, real in zip(
            *(tensor.flatten().tolist() for tensor in (rewards, log_probabilities, entropies, valid)), strict=True
        )
        if real
    ]
    assert float(loss) == pytest.approx(np.mean(terms), abs=1e-6)


def test_the_baseline_is_a_moving_average_of_rewards() -> None:
    reinforce, valid = Reinforce(), torch.tensor([[True, True, False]])
    expected = 0.0
    for reward in (-4.0, -2.0, -1.0):
        reinforce(torch.tensor([[reward - 1, reward + 1, 9.0]]), sampled(valid * 1.0, valid * 1.0), valid)
        expected = alignment.BASELINE_DECAY * expected + (1 - alignment.BASELINE_DECAY) * reward
        assert float(reinforce.baseline) == pytest.approx(expected)


def test_no_gradient_goes_through_the_reward() -> None:
    rewards, log_probabilities = (torch.randn(1, 2, requires_grad=True) for _ in range(2))
    Reinforce()(rewards, sampled(log_probabilities, torch.ones(1, 2)), torch.ones(1, 2).bool()).backward()
    assert rewards.grad is None
    assert log_probabilities.grad is not None


def test_the_position_that_is_rewarded_becomes_the_most_probable_one() -> None:
    torch.manual_seed(1)
    scores = torch.zeros(16, 5, requires_grad=True)
    optimizer = torch.optim.Adam([scores], lr=0.1)
    reinforce, valid = Reinforce(), torch.ones(16, 1, dtype=torch.bool)
    rewarded = torch.arange(16) % 5
    for _ in range(150):
        sampler = PositionSampler(torch.zeros(16, dtype=torch.bool))
        rewards = (sampler(scores.softmax(dim=-1)).argmax(dim=-1) == rewarded).float()[:, None] - 1
        loss = reinforce(rewards, sampled(sampler.log_probabilities[0][:, None], sampler.entropies[0][:, None]), valid)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert torch.equal(scores.argmax(dim=-1), rewarded)


def test_the_baseline_is_kept_in_the_checkpoint_of_a_hard_model_alone() -> None:
    assert "reinforce.baseline" in hard_model().state_dict()
    assert random_recurrent(attention="additive").reinforce is None


def test_a_hard_model_attends_to_the_most_probable_position() -> None:
    soft = random_recurrent(attention="additive")
    hard = hard_model()
    hard.load_state_dict(soft.state_dict(), strict=False)
    source, target = ragged_ids([7, 3]), random_ids(2, 1, seed=2)
    soft_maps, hard_maps = soft.attention_maps(source, target), hard.attention_maps(source, target)
    assert torch.equal(hard_maps.argmax(dim=-1), soft_maps.argmax(dim=-1))
    assert set(hard_maps.flatten().tolist()) == {0.0, 1.0}
    assert (hard_maps.sum(dim=-1) == 1).all()


def test_sampled_decoding_returns_a_state_and_a_choice_for_every_target_token() -> None:
    model = hard_model()
    memory = model.encode(ragged_ids([7, 3, 5]))
    decoded = model.decode_sampled(random_ids(3, 4, seed=2), memory)
    assert decoded.states.shape == (3, 4, 16)
    assert decoded.log_probabilities.shape == decoded.entropies.shape == (3, 4)
    assert (decoded.entropies <= torch.tensor([7.0, 3.0, 5.0]).log()[:, None] + 1e-5).all()
    assert (decoded.log_probabilities <= 0).all()


def test_a_source_of_one_token_leaves_no_choice() -> None:
    model = hard_model()
    memory, target = model.encode(random_ids(2, 1)), random_ids(2, 4, seed=2)
    decoded = model.decode_sampled(target, memory)
    torch.testing.assert_close(decoded.states, model.decode(target, memory))
    assert not decoded.log_probabilities.any()


def test_the_scores_of_a_hard_model_learn_from_what_was_sampled() -> None:
    """The most probable position gives them no gradient."""
    model = hard_model()
    source, target, labels = random_ids(4, 6), random_ids(4, 5, seed=2), random_ids(4, 5, seed=3)
    model(source, target).sum().backward()
    scores = list(model.decoder.alignment.parameters())
    assert not any(parameter.grad is not None and parameter.grad.any() for parameter in scores)

    decoded = model.decode_sampled(target, model.encode(source))
    log_likelihoods = model.project(decoded.states).log_softmax(dim=-1).gather(2, labels[:, :, None])[:, :, 0]
    assert model.reinforce is not None
    assert log_likelihoods.shape == labels.shape
    assert int(labels.max()) < VOCABULARY
    model.reinforce(log_likelihoods, decoded, torch.ones_like(labels, dtype=torch.bool)).backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in scores)
