"""The Transformer with all its options: formulas, parameters and states."""

import numpy as np
import pytest
import torch
from torch import Tensor

from dragoman.export.teacher_forcing import Pair, _Pass
from dragoman.export.torch_weights import to_weights
from dragoman.model.config import TransformerConfig
from dragoman.model.network.attention import sinusoidal_positions
from dragoman.model.network.transformer import Transformer
from dragoman.model.run import build_model
from dragoman.model.tokenizer.tokenizer import BOS_ID, PAD_ID
from tests.support import reference
from tests.support.toy import OPTIONS, VOCABULARY, random_ids, random_model


@pytest.fixture(params=OPTIONS)
def model(request: pytest.FixtureRequest) -> Transformer:
    """A random model with one of the options; no parameter has a trivial value."""
    return make_model(request.param)


def make_model(options: str = "default") -> Transformer:
    depths = {"encoder_layers": 2, "decoder_layers": 2}
    return random_model(5, VOCABULARY, **{**depths, **OPTIONS[options]})


def test_the_logits_are_those_of_the_formulas(model: Transformer) -> None:
    """Teacher forcing in NumPy follows the papers."""
    sources, targets = random_ids(3, 12), random_ids(3, 10, seed=2)
    targets[:, 0] = BOS_ID
    read = zip(sources.tolist(), targets[:, 1:].tolist(), strict=True)
    weights = to_weights(model)
    reading = _Pass(weights, [Pair(tuple(source), (), tuple(target)) for source, target in read], 0, lambda *_: None)
    states = reading._decode(reading._encode())  # [B * T, D]
    expected = states @ weights.output.T + weights.parameters.get("output_bias", np.float32(0))
    actual = model(sources, targets).detach().flatten(end_dim=1).numpy()
    np.testing.assert_allclose(actual, expected, atol=1e-4)


@pytest.mark.parametrize(("length", "d_model"), [(1, 2), (7, 8), (50, 64), (257, 16)])
def test_positions_follow_the_formula(length: int, d_model: int) -> None:
    expected = reference.sinusoidal_positions(length, d_model)
    np.testing.assert_allclose(sinusoidal_positions(length, d_model).numpy(), expected, atol=2e-5)


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
    norms = ("encoder_norm", "decoder_norm", "source_embedding_norm", "target_embedding_norm")
    assert added["pre-norm"] == {f"{norm}.{kind}" for norm in norms for kind in ("weight", "bias")}
    assert added["learned"] == {"source_positions.table", "target_positions.table"}
    assert added["untied"] == {"target_embedding.weight", "output.weight"}
    assert added["output bias"] == {"output_bias"}


def test_no_buffer_is_kept_in_a_checkpoint(model: Transformer) -> None:
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}


def test_every_tensor_is_where_the_parameters_are(model: Transformer) -> None:
    """So that training and generation run on any device."""
    model.to("meta")
    source, target = random_ids(2, 5).to("meta"), random_ids(2, 4).to("meta")
    assert model.train()(source, target).device.type == "meta"
    logits, state = model.decode_step(target[:, 0], model.start(model.encode(source)))
    assert {tensor.device.type for tensor in (logits, *state.values())} == {"meta"}
    assert model.attention_maps(source, target).device.type == "meta"


@pytest.mark.parametrize("options", OPTIONS)
def test_a_new_model_predicts_with_little_confidence(options: str) -> None:
    """Its initial parameters are small: the loss starts near that of guessing."""
    torch.manual_seed(1)
    config = TransformerConfig.model_validate({"d_model": 64, "d_ff": 128, "heads": 4, **OPTIONS[options]})
    assert float(build_model(config, VOCABULARY).eval()(random_ids(4, 8), random_ids(4, 8, seed=2)).detach().std()) < 2


def test_aligned_decoding_has_the_states_of_decoding_and_the_attention_of_the_last_layer(model: Transformer) -> None:
    sources, targets = random_ids(3, 12), random_ids(3, 10, seed=2)
    states, weights = model.decode_aligned(targets, model.encode(sources))
    torch.testing.assert_close(states, model.decode(targets, model.encode(sources)))
    first_of_last_layer = (model.config.decoder_layers - 1) * model.config.heads
    torch.testing.assert_close(weights, model.attention_maps(sources, targets)[:, first_of_last_layer])
