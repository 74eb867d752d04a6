"""The Transformer: its positions and layers are the paper's, and no position sees padding or the future."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from model.config import TransformerConfig
from model.tokenizer import BOS_ID, EOS_ID, PAD_ID
from model.transformer import Residual, Transformer, sinusoidal_positions
from tests import reference

VOCABULARY = 40
SHAPES = [(8, 1, 1, 1), (16, 2, 1, 2), (32, 2, 2, 1), (32, 4, 2, 2)]


def make_model(d_model: int = 16, heads: int = 2, encoder_layers: int = 2, decoder_layers: int = 2) -> Transformer:
    torch.manual_seed(d_model + heads)
    config = TransformerConfig(
        d_model=d_model,
        d_ff=2 * d_model,
        heads=heads,
        encoder_layers=encoder_layers,
        decoder_layers=decoder_layers,
        max_source_tokens=12,
        max_target_tokens=9,
    )
    return Transformer(config, VOCABULARY, PAD_ID).eval()


def random_ids(rows: int, length: int, seed: int = 1) -> Tensor:
    return torch.randint(EOS_ID, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def padded(ids: Tensor, padding: int) -> Tensor:
    return nn.functional.pad(ids, (0, padding), value=PAD_ID)


@pytest.mark.parametrize(("length", "d_model"), [(1, 2), (7, 8), (50, 64), (257, 16)])
def test_positions_follow_the_formula(length: int, d_model: int) -> None:
    expected = reference.sinusoidal_positions(length, d_model)
    np.testing.assert_allclose(sinusoidal_positions(length, d_model).numpy(), expected, atol=2e-5)


def test_a_residual_normalises_the_sum() -> None:
    residual = Residual(8, dropout=0.5).eval()
    nn.init.normal_(residual.norm.weight)
    nn.init.normal_(residual.norm.bias)
    states, output = torch.randn(2, 3, 8), torch.randn(2, 3, 8)
    weight, bias = (tensor.detach().double().numpy() for tensor in (residual.norm.weight, residual.norm.bias))
    expected = reference.layer_norm((states + output).double().numpy(), weight, bias)
    np.testing.assert_allclose(residual(states, output).detach().numpy(), expected, atol=1e-5)


def test_embeddings_are_scaled_and_get_positions() -> None:
    model = make_model()
    ids = random_ids(2, 5)
    expected = model.embedding.weight[ids] * 4 + model.positions[:5]
    torch.testing.assert_close(model.embed(ids), expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_padding_of_the_source_changes_nothing(shape: tuple[int, int, int, int]) -> None:
    model = make_model(*shape)
    source, target = random_ids(3, 6), random_ids(3, 4, seed=2)
    torch.testing.assert_close(model(padded(source, 5), target), model(source, target), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_padding_of_the_target_changes_nothing(shape: tuple[int, int, int, int]) -> None:
    model = make_model(*shape)
    source, target = random_ids(3, 6), random_ids(3, 4, seed=2)
    torch.testing.assert_close(model(source, padded(target, 3))[:, :4], model(source, target), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_is_the_same_alone_and_among_longer_ones(shape: tuple[int, int, int, int]) -> None:
    model = make_model(*shape)
    sources, targets = random_ids(2, 9), random_ids(2, 7, seed=2)
    sources[0, 5:] = targets[0, 3:] = PAD_ID
    together = model(sources, targets)
    torch.testing.assert_close(together[0, :3], model(sources[:1, :5], targets[:1, :3])[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(together[1], model(sources[1:], targets[1:])[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("position", range(1, 6))
def test_a_later_target_token_does_not_influence_earlier_predictions(position: int) -> None:
    model = make_model()
    source, target = random_ids(1, 6), random_ids(1, 6, seed=2)
    changed = target.clone()
    changed[0, position] = target[0, position] % (VOCABULARY - 1) + 1
    before, after = model(source, target)[0], model(source, changed)[0]
    torch.testing.assert_close(after[:position], before[:position])
    assert not torch.allclose(after[position], before[position])


def test_every_source_token_influences_every_prediction() -> None:
    model = make_model()
    source, target = random_ids(1, 4), random_ids(1, 3, seed=2)
    before = model(source, target)[0]
    for position in range(4):
        changed = source.clone()
        changed[0, position] = source[0, position] % (VOCABULARY - 1) + 1
        difference = (model(changed, target)[0] - before).abs().amax(dim=-1)
        assert (difference > 1e-4).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_decoding_a_prefix_gives_the_prefix_of_decoding(shape: tuple[int, int, int, int]) -> None:
    model = make_model(*shape)
    memory, mask = model.encode(random_ids(2, 5))
    target = random_ids(2, 9, seed=2)
    target[:, 0] = BOS_ID
    whole = model.decode(target, memory, mask)
    for length in range(1, 10):
        prefix = model.decode(target[:, :length], memory, mask)
        torch.testing.assert_close(prefix, whole[:, :length], atol=1e-5, rtol=1e-5)


def test_source_target_and_output_share_one_embedding() -> None:
    model = make_model()
    shared = [name for name, parameter in model.named_parameters() if VOCABULARY in parameter.shape]
    assert shared == ["embedding.weight"]
    states = torch.randn(2, 3, 16)
    torch.testing.assert_close(model.project(states), states @ model.embedding.weight.T)


def test_no_buffer_is_kept_in_a_checkpoint() -> None:
    model = make_model()
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}


def test_the_longest_source_and_target_have_positions() -> None:
    """The begin token has one of its own."""
    model = make_model()
    assert model(random_ids(1, 12), random_ids(1, 10)).shape == (1, 10, VOCABULARY)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_parameter_learns(shape: tuple[int, int, int, int]) -> None:
    """All but the biases of keys: the softmax does not see what all keys have in common."""
    model = make_model(*shape)
    model(random_ids(2, 5), random_ids(2, 4)).logsumexp(dim=-1).sum().backward()
    idle = [name for name, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    assert [name for name in idle if not name.endswith("key.bias")] == []


def test_every_tensor_is_where_the_parameters_are() -> None:
    """So that training may run on any device."""
    model = make_model().to("meta")
    assert model(random_ids(2, 5).to("meta"), random_ids(2, 4).to("meta")).device.type == "meta"


def test_dropout_is_active_in_training_alone() -> None:
    model = make_model()
    source, target = random_ids(1, 5), random_ids(1, 4)
    assert torch.equal(model(source, target), model(source, target))
    model.train()
    assert not torch.equal(model(source, target), model(source, target))
