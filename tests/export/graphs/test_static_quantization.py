"""Static quantization computes what a plain reference computes, with ranges from golden sentences."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from export.graphs.calibration import Observed, StaticLinear, observe
from export.graphs.graphs import NOTHING_OBSERVED
from export.graphs.quantized_graph import quantized
from export.graphs.quantized_layers import QuantizedLinear
from export.graphs.transformer import PackedProjection
from export.source_model import Exportable
from model.network.layers import FeedForward, build_feed_forward
from model.network.transformer import Transformer
from model.run import RunFolder
from serve.bundle.bundle import Bundle
from serve.bundle.manifest import ActivationRange, GraphVariant
from tests.support.one_layer import Array, run_layer, session_of
from tests.support.toy import ToyBundles, random_model

VARIANTS: tuple[GraphVariant, ...] = ("cpu", "portable")
RANGE = ActivationRange(smallest=-1.5, largest=2.5)
# Around zero, above zero, below zero, and empty.
RANGES = [RANGE] + [ActivationRange(smallest=low, largest=high) for low, high in ((0, 3), (-3, 0), (0, 0))]


def multiply_reference(states: Array, linear: nn.Linear, known: ActivationRange) -> Array:
    """Multiplies activations rounded to 256 levels of the range by weights rounded to 127 levels per row."""
    distance = np.float32(max(known.largest - known.smallest, 1e-12) / 255)
    zero = round(-known.smallest / float(distance))
    whole = np.clip(np.round(states / distance) + zero, 0, 255) - zero
    weight = linear.weight.detach().numpy()
    scales = np.abs(weight).max(axis=1, keepdims=True) / np.float32(127)
    exact = whole.astype(np.int64) @ np.round(weight / scales).astype(np.int64).T
    result: Array = (exact * distance * scales.T).astype(np.float32)
    if linear.bias is not None:
        result += linear.bias.detach().numpy()
    return result


class OfEveryRange(nn.Module):
    """A layer in every range, as one graph."""

    def __init__(self, linear: nn.Linear, variant: GraphVariant) -> None:
        super().__init__()
        self.layers = nn.ModuleList(StaticLinear(linear, variant, known) for known in RANGES)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return torch.stack([layer(states) for layer in self.layers])


@pytest.mark.parametrize(("variant", "bias"), [*product(VARIANTS, (True, False))], ids=str)
def test_a_static_layer_multiplies_whole_numbers(variant: GraphVariant, bias: bool) -> None:
    torch.manual_seed(1)
    linear = nn.Linear(24, 9, bias=bias)
    session = session_of(OfEveryRange(linear, variant), torch.randn(3, 24))
    states = np.random.default_rng(2).uniform(-3, 3, (7, 24)).astype(np.float32)
    states[3] = 0.0
    states[4] *= 1e4
    for actual, known in zip(run_layer(session, states), RANGES, strict=True):
        assert actual == pytest.approx(multiply_reference(states, linear, known), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_neighbor_with_large_activations_changes_no_bit(variant: GraphVariant) -> None:
    torch.manual_seed(3)
    session = session_of(StaticLinear(nn.Linear(64, 40), variant, RANGE), torch.randn(2, 64))
    states = np.random.default_rng(4).standard_normal((33, 64)).astype(np.float32)
    states[1::2] *= 1e6
    together = run_layer(session, states)
    assert all(run_layer(session, states[row : row + 1]).tobytes() == together[row].tobytes() for row in range(33))


@pytest.mark.parametrize(
    "options", [{}, {"tie_embeddings": False}, {"norm_position": "pre", "activation": "swiglu", "norm": "rms"}], ids=str
)
@torch.inference_mode()
def test_ranges_are_the_extremes_of_the_inputs_of_each_layer(options: dict[str, Any]) -> None:
    model = random_model(3, decoder_layers=2, **options)
    translations = [((5, 6, 7, 2), (8, 9)), ((4, 2), (5, 4, 6))]
    observed = observe(model, translations)

    attention = model.decoder_layers[1].cross_attention
    read: list[torch.Tensor] = []
    written: list[torch.Tensor] = []
    attention.query.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    attention.value.register_forward_hook(lambda _, __, output: written.append(output))
    for source_ids, target_ids in translations:
        model(torch.tensor([source_ids]), torch.tensor([[model.bos_id, *target_ids]]))
    for seen, positions, known in (
        (read, 3 + 4, observed.activations["decoder.1.cross_attention.query"]),
        (written, 4 + 2, observed.caches["decoder.1.cross_attention.value"]),
    ):
        everything = torch.cat([states.flatten() for states in seen])
        assert len(everything) == positions * model.config.d_model
        assert (known.smallest, known.largest) == (everything.min().item(), everything.max().item())

    linear = {name for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    assert set(observed.activations) == linear - {"output"}
    decoder = {name for name in linear if name.startswith("decoder.")}
    assert set(observed.caches) == {name for name in decoder if name.endswith((".key", ".value"))}


def test_observing_removes_its_hooks() -> None:
    model = random_model(3)
    observe(model, [((5, 2), (6,))])
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def feed_forward_graph(activation: str, known: ActivationRange) -> FeedForward:
    network = build_feed_forward(random_model(1, activation=activation).config)
    assert isinstance(network, FeedForward)
    copy = quantized(network, "cpu", {network.inner: RANGE, network.outer: known})
    assert isinstance(copy, FeedForward)
    return copy


def test_a_range_from_zero_makes_the_relu_redundant() -> None:
    from_zero = ActivationRange(smallest=0, largest=3)
    negative = torch.tensor([-1.0, 2.0])
    assert feed_forward_graph("relu", from_zero).activation(negative).tolist() == [-1.0, 2.0]
    assert feed_forward_graph("relu", RANGE).activation(negative).tolist() == [0.0, 2.0]
    assert feed_forward_graph("gelu", from_zero).activation(negative)[0] != -1.0


def test_a_layer_without_a_range_gets_a_scale_for_every_row() -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    first, second = quantized(network, "cpu", {network[1]: RANGE}).children()
    assert isinstance(first, QuantizedLinear)
    assert isinstance(second, StaticLinear)


def test_a_packed_projection_has_the_range_of_its_parts() -> None:
    attention = random_model(1).decoder_layers[0].self_attention
    graph = nn.ModuleDict({"qkv": PackedProjection(attention)})
    (packed,) = quantized(graph, "cpu", {attention.query: RANGE}).children()
    assert isinstance(packed, StaticLinear)
    assert len(packed.matrix.scales) == 3 * attention.query.out_features


def test_the_manifest_holds_the_ranges_of_the_golden_sentences(toy_run: RunFolder, toy_bundles: ToyBundles) -> None:
    manifest = Bundle.open(toy_bundles("cpu", "int8-static")).manifest
    model = Exportable.of_run(toy_run.load()).model
    assert isinstance(model, Transformer)
    # the 8-bit bundle keeps only the golden sentences that it reproduces
    whole = Bundle.open(toy_bundles("cpu", "fp32")).golden
    observed = observe(model, [(sentence.source_ids, sentence.target_ids) for sentence in whole])
    assert Observed(manifest.activation_ranges, manifest.cache_ranges) == observed
    scales_of_rows = Bundle.open(toy_bundles("cpu", "int8")).manifest
    assert Observed(scales_of_rows.activation_ranges, scales_of_rows.cache_ranges) == NOTHING_OBSERVED


def test_only_cpu_graphs_have_int8_caches(toy_bundles: ToyBundles) -> None:
    cpu, portable = (Bundle.open(toy_bundles(variant, "int8-static")).manifest for variant in VARIANTS)
    assert {state.element for state in cpu.states} == {"int8"}
    assert {state.element for state in portable.states} == {"float"}
    assert portable.activation_ranges == cpu.activation_ranges
    assert not portable.cache_ranges
