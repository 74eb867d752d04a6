"""Rules of every translation model: padding and later tokens change nothing, and steps equal the whole."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from dragoman.model.network.transformer import Transformer
from dragoman.model.tokenizer.tokenizer import BOS_ID, PAD_ID
from tests.support.toy import OPTIONS, VOCABULARY, ragged_ids, random_ids, random_model

DEPTHS = {"encoder_layers": 2, "decoder_layers": 2}
Make = Callable[..., Transformer]
MODELS: dict[str, Make] = {
    name: partial(random_model, 5, VOCABULARY, **{**DEPTHS, **options}) for name, options in OPTIONS.items()
}


@pytest.fixture(params=list(MODELS.values()), ids=list(MODELS))
def make(request: pytest.FixtureRequest) -> Make:
    """Makes a random model; no parameter has a trivial value."""
    value: Make = request.param
    return value


@pytest.fixture
def model(make: Make) -> Transformer:
    return make()


def assert_close(actual: Tensor, expected: Tensor) -> None:
    """Asserts that logits are equal up to float32 rounding."""
    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=2e-5)


def padded(ids: Tensor, padding: int) -> Tensor:
    return nn.functional.pad(ids, (0, padding), value=PAD_ID)


def changed_at(ids: Tensor, position: int) -> Tensor:
    changed = ids.clone()
    changed[0, position] = ids[0, position] % (VOCABULARY - 1) + 1
    return changed


@pytest.mark.parametrize("lengths", [[1], [12], [4, 4], [3, 9, 1, 6]], ids=str)
def test_steps_predict_what_decoding_as_a_whole_predicts(model: Transformer, lengths: list[int]) -> None:
    """With any padding, and for targets longer than their source."""
    source, target = ragged_ids(lengths), random_ids(len(lengths), 9, seed=2)
    expected = model(source, target)
    state = model.start(model.encode(source))
    for position, token_ids in enumerate(target.unbind(dim=1)):
        logits, state = model.decode_step(token_ids, state)
        assert_close(logits, expected[:, position])


def test_padding_changes_nothing(model: Transformer) -> None:
    source, target = random_ids(3, 6), random_ids(3, 4, seed=2)
    assert_close(model(padded(source, 5), padded(target, 3))[:, :4], model(source, target))


def test_a_row_is_the_same_alone_and_among_longer_ones(model: Transformer) -> None:
    source, target = ragged_ids([9, 5]), random_ids(2, 7, seed=2)
    together = model(source, target)
    assert_close(together[0], model(source[:1], target[:1])[0])
    assert_close(together[1], model(source[1:, :5], target[1:])[0])


@pytest.mark.parametrize("position", [1, 3, 5])
def test_a_later_target_token_does_not_influence_earlier_predictions(model: Transformer, position: int) -> None:
    source, target = random_ids(1, 6), random_ids(1, 6, seed=2)
    before, after = model(source, target)[0], model(source, changed_at(target, position))[0]
    assert_close(after[:position], before[:position])
    assert not torch.allclose(after[position], before[position])


def test_every_source_token_influences_every_prediction(model: Transformer) -> None:
    source, target = random_ids(1, 4), random_ids(1, 3, seed=2)
    before = model(source, target)[0]
    for position in range(4):
        assert ((model(changed_at(source, position), target)[0] - before).abs().amax(dim=-1) > 1e-4).all()


def test_every_parameter_learns(model: Transformer) -> None:
    """Except biases of keys, whose common offset a softmax ignores."""
    target = random_ids(2, 4, seed=2)
    target[:, 0] = BOS_ID
    model(random_ids(2, 5), target).logsumexp(dim=-1).sum().backward()
    idle = [name for name, value in model.named_parameters() if value.grad is None or not value.grad.any()]
    assert [name for name in idle if not name.endswith("key.bias")] == []


def test_dropout_is_active_in_training_alone(make: Make) -> None:
    model = make(dropout=0.1)
    source, target = random_ids(1, 5), random_ids(1, 4)
    assert torch.equal(model(source, target), model(source, target))
    model.train()
    assert not torch.equal(model(source, target), model(source, target))


def test_source_target_and_output_share_one_embedding() -> None:
    model = MODELS["default"]()
    assert [name for name, value in model.named_parameters() if VOCABULARY in value.shape] == ["embedding.weight"]
    embedding = model.get_parameter("embedding.weight")
    states = torch.randn(2, 3, embedding.shape[1])
    assert_close(model.project(states), states @ embedding.T)
