"""The Transformer with all its options: formulas, masks, and steps that equal the whole."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from model.config import TransformerConfig
from model.network.attention import sinusoidal_positions
from model.network.layers import Residual, build_feed_forward, build_norm
from model.network.transformer import Transformer
from model.run import build_model
from model.tokenizer.tokenizer import BOS_ID, EOS_ID, PAD_ID
from tests.support import reference
from tests.support.toy import OPTIONS, random_model

VOCABULARY = 40


@pytest.fixture(params=OPTIONS)
def model(request: pytest.FixtureRequest) -> Transformer:
    """A random model with one of the options; no parameter has a trivial value."""
    return make_model(request.param)


def make_model(options: str = "default") -> Transformer:
    depths = {"encoder_layers": 2, "decoder_layers": 2}
    return random_model(5, VOCABULARY, **{**depths, **OPTIONS[options]})


def assert_close(actual: Tensor, expected: Tensor) -> None:
    """Asserts that logits are equal up to float32 rounding."""
    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=2e-5)


def random_ids(rows: int, length: int, seed: int = 1) -> Tensor:
    return torch.randint(EOS_ID, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def padded(ids: Tensor, padding: int) -> Tensor:
    return nn.functional.pad(ids, (0, padding), value=PAD_ID)


def parameters_of(module: nn.Module) -> reference.Parameters:
    return {name: parameter.detach().double().numpy() for name, parameter in module.named_parameters()}


def test_the_logits_are_those_of_the_formulas(model: Transformer) -> None:
    expected = reference.Transformer(model.config, parameters_of(model))
    sources, targets = random_ids(3, 12), random_ids(3, 10, seed=2)
    actual = model(sources, targets).detach().numpy()
    for logits, source, target in zip(actual, sources.tolist(), targets.tolist(), strict=True):
        np.testing.assert_allclose(logits, expected.logits(source, target), atol=1e-4)


@pytest.mark.parametrize(("length", "d_model"), [(1, 2), (7, 8), (50, 64), (257, 16)])
def test_positions_follow_the_formula(length: int, d_model: int) -> None:
    expected = reference.sinusoidal_positions(length, d_model)
    np.testing.assert_allclose(sinusoidal_positions(length, d_model).numpy(), expected, atol=2e-5)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
def test_norms_follow_their_formulas(scale: float) -> None:
    states = torch.randn(2, 3, 8) * scale
    layer, rms = build_norm("layer", 8), build_norm("rms", 8)
    for norm in (layer, rms):
        for parameter in norm.parameters():
            nn.init.normal_(parameter)
    wide = states.double().numpy()
    ours = parameters_of(layer)
    expected = reference.layer_norm(wide, ours["weight"], ours["bias"])
    np.testing.assert_allclose(layer(states).detach().numpy(), expected, atol=1e-5)
    expected = reference.rms_norm(wide, parameters_of(rms)["weight"])
    np.testing.assert_allclose(rms(states).detach().numpy(), expected, atol=1e-5)


def test_a_post_norm_residual_normalizes_the_sum() -> None:
    residual = Residual(TransformerConfig(d_model=8, heads=1, norm_position="post")).eval()
    states = torch.randn(2, 3, 8)
    torch.testing.assert_close(residual(states, torch.tanh), residual.norm(states + states.tanh()))


def test_a_pre_norm_residual_normalizes_what_the_sub_layer_reads() -> None:
    residual = Residual(TransformerConfig(d_model=8, heads=1, norm_position="pre")).eval()
    states = torch.randn(2, 3, 8)
    torch.testing.assert_close(residual(states, torch.tanh), states + residual.norm(states).tanh())


def test_swiglu_has_three_matrices_and_no_bias() -> None:
    network = build_feed_forward(TransformerConfig(d_model=8, heads=1, d_ff=12, activation="swiglu"))
    shapes = {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}
    assert shapes == {"gate.weight": (12, 8), "inner.weight": (12, 8), "outer.weight": (8, 12)}


def test_embeddings_are_scaled_and_get_positions(model: Transformer) -> None:
    ids = random_ids(2, 5)
    scale = 32**0.5 if model.config.scale_embeddings else 1.0
    scaled = model.source_weight[ids] * scale + model.source_positions.table[:5]
    torch.testing.assert_close(model.embed_source(ids), scaled)
    scaled = model.target_weight[ids] * scale + model.target_positions.table[3:8]
    torch.testing.assert_close(model.embed_target(ids, first=3), scaled)


def test_padding_of_the_source_changes_nothing(model: Transformer) -> None:
    source, target = random_ids(3, 6), random_ids(3, 4, seed=2)
    assert_close(model(padded(source, 5), target), model(source, target))


def test_padding_of_the_target_changes_nothing(model: Transformer) -> None:
    source, target = random_ids(3, 6), random_ids(3, 4, seed=2)
    assert_close(model(source, padded(target, 3))[:, :4], model(source, target))


def test_a_row_is_the_same_alone_and_among_longer_ones(model: Transformer) -> None:
    sources, targets = random_ids(2, 9), random_ids(2, 7, seed=2)
    sources[0, 5:] = targets[0, 3:] = PAD_ID
    together = model(sources, targets)
    assert_close(together[0, :3], model(sources[:1, :5], targets[:1, :3])[0])
    assert_close(together[1], model(sources[1:], targets[1:])[0])


@pytest.mark.parametrize("position", range(1, 6))
def test_a_later_target_token_does_not_influence_earlier_predictions(model: Transformer, position: int) -> None:
    source, target = random_ids(1, 6), random_ids(1, 6, seed=2)
    changed = target.clone()
    changed[0, position] = target[0, position] % (VOCABULARY - 1) + 1
    before, after = model(source, target)[0], model(source, changed)[0]
    torch.testing.assert_close(after[:position], before[:position])
    assert not torch.allclose(after[position], before[position])


def test_every_source_token_influences_every_prediction(model: Transformer) -> None:
    source, target = random_ids(1, 4), random_ids(1, 3, seed=2)
    before = model(source, target)[0]
    for position in range(4):
        changed = source.clone()
        changed[0, position] = source[0, position] % (VOCABULARY - 1) + 1
        difference = (model(changed, target)[0] - before).abs().amax(dim=-1)
        assert (difference > 1e-4).all()


def test_steps_give_the_logits_of_full_recomputation(model: Transformer) -> None:
    """From BOS to the longest target, with sources of different lengths."""
    sources, targets = random_ids(3, 7), random_ids(3, 10, seed=2)
    sources[0, 4:] = PAD_ID
    targets[:, 0] = BOS_ID
    expected = model(sources, targets)
    state = model.start(model.encode(sources))
    for position in range(10):
        logits, state = model.decode_step(targets[:, position], state)
        assert_close(logits, expected[:, position])


def test_a_step_changes_no_state_that_it_was_given(model: Transformer) -> None:
    """So that several hypotheses can continue from one state."""
    before = model.start(model.encode(random_ids(2, 5)))
    _, before = model.decode_step(random_ids(1, 2)[0], before)
    copies = {name: tensor.clone() for name, tensor in before.items()}
    model.decode_step(random_ids(1, 2, seed=2)[0], before)
    assert before.keys() == copies.keys()
    assert all(torch.equal(before[name], copies[name]) for name in copies)


def test_a_step_hands_on_what_belongs_to_the_source(model: Transformer) -> None:
    state = model.start(model.encode(random_ids(2, 5)))
    _, following = model.decode_step(random_ids(1, 2)[0], state)
    untouched = {name for name in state if following[name] is state[name]}
    assert untouched == {name for name in state if name.startswith(("cross_", "source_"))}


def test_attention_maps_are_the_weights_of_cross_attention(model: Transformer) -> None:
    """Recomputed here from the actual inputs of each layer."""
    sources, targets = random_ids(2, 6), random_ids(2, 4, seed=2)
    sources[0, 4:] = PAD_ID
    expected: list[Tensor] = []
    for layer in model.decoder_layers:
        layer.cross_attention.register_forward_hook(lambda module, inputs, _: expected.append(module.weights(*inputs)))
    model(sources, targets)
    maps = model.attention_maps(sources, targets)
    assert maps.shape == (2, model.config.decoder_layers * model.config.heads, 4, 6)
    torch.testing.assert_close(maps, torch.cat(expected[: model.config.decoder_layers], dim=1))
    torch.testing.assert_close(maps.sum(dim=-1), torch.ones(maps.shape[:-1]))
    assert not maps[0, :, :, 4:].any()


def test_source_target_and_output_share_one_embedding() -> None:
    model = make_model()
    shared = [name for name, parameter in model.named_parameters() if VOCABULARY in parameter.shape]
    assert shared == ["embedding.weight"]
    states = torch.randn(2, 3, 32)
    torch.testing.assert_close(model.project(states), states @ model.embedding.weight.T)


def test_untied_source_target_and_output_have_a_matrix_each() -> None:
    model = make_model("untied")
    own = [name for name, parameter in model.named_parameters() if VOCABULARY in parameter.shape]
    assert own == ["embedding.weight", "target_embedding.weight", "output.weight"]
    states = torch.randn(2, 3, 32)
    torch.testing.assert_close(model.project(states), states @ model.output_weight.T)


def test_the_parameters_of_the_paper_have_the_names_of_old_checkpoints() -> None:
    attention = {f"{part}.{kind}" for part in ("query", "key", "value", "output") for kind in ("weight", "bias")}
    feed_forward = {f"feed_forward.{part}.{kind}" for part in ("inner", "outer") for kind in ("weight", "bias")}
    encoder = {f"self_attention.{name}" for name in attention} | feed_forward
    decoder = encoder | {f"cross_attention.{name}" for name in attention}
    residuals = {"self_attention", "feed_forward"}
    encoder |= {f"{name}_residual.norm.{kind}" for name in residuals for kind in ("weight", "bias")}
    residuals |= {"cross_attention"}
    decoder |= {f"{name}_residual.norm.{kind}" for name in residuals for kind in ("weight", "bias")}
    expected = {"embedding.weight"}
    for layer in range(2):
        expected |= {f"encoder.{layer}.{name}" for name in encoder} | {f"decoder.{layer}.{name}" for name in decoder}
    assert set(make_model().state_dict()) == expected


def test_every_option_has_parameters_of_its_own() -> None:
    added = {option: set(make_model(option).state_dict()) - set(make_model().state_dict()) for option in OPTIONS}
    assert added["pre-norm"] == {
        f"{side}_norm.{kind}" for side in ("encoder", "decoder") for kind in ("weight", "bias")
    }
    assert added["learned"] == {"source_positions.table", "target_positions.table"}
    assert added["untied"] == {"target_embedding.weight", "output.weight"}
    assert added["output bias"] == {"output_bias"}


def test_no_buffer_is_kept_in_a_checkpoint(model: Transformer) -> None:
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}


def test_the_longest_source_and_target_have_positions(model: Transformer) -> None:
    """BOS takes one target position."""
    assert model(random_ids(1, 12), random_ids(1, 10)).shape == (1, 10, VOCABULARY)


def test_every_parameter_learns(model: Transformer) -> None:
    """Except biases of keys: the softmax ignores a common offset."""
    model(random_ids(2, 5), random_ids(2, 4)).logsumexp(dim=-1).sum().backward()
    idle = [name for name, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    assert [name for name in idle if not name.endswith("key.bias")] == []


def test_every_tensor_is_where_the_parameters_are(model: Transformer) -> None:
    """So that training and generation run on any device."""
    model.to("meta")
    source, target = random_ids(2, 5).to("meta"), random_ids(2, 4).to("meta")
    assert model.train()(source, target).device.type == "meta"
    logits, state = model.decode_step(target[:, 0], model.start(model.encode(source)))
    assert {tensor.device.type for tensor in (logits, *state.values())} == {"meta"}
    assert model.attention_maps(source, target).device.type == "meta"


def test_dropout_is_active_in_training_alone() -> None:
    model = random_model(5, VOCABULARY, dropout=0.1)
    source, target = random_ids(1, 5), random_ids(1, 4)
    assert torch.equal(model(source, target), model(source, target))
    model.train()
    assert not torch.equal(model(source, target), model(source, target))


@pytest.mark.parametrize("options", OPTIONS)
def test_a_new_model_predicts_with_little_confidence(options: str) -> None:
    """Its initial parameters are small: the loss starts near that of guessing."""
    torch.manual_seed(1)
    config = TransformerConfig.model_validate({"d_model": 64, "d_ff": 128, "heads": 4, **OPTIONS[options]})
    logits = build_model(config, VOCABULARY).eval()(random_ids(4, 8), random_ids(4, 8, seed=2))
    assert float(logits.detach().std()) < 2
