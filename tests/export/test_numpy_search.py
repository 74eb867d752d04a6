"""The search in NumPy finds what PyTorch finds, for every option of a Transformer; weights convert without a change."""

from typing import Any

import numpy as np
import pytest
import torch

from export.numpy_search import translate_greedy
from export.torch_weights import to_torch, to_weights
from model.search import generate_greedy
from model.weights import parameter_shapes
from tests.support.toy import OPTIONS, random_model, random_sources

VOCABULARY = 50


@pytest.mark.parametrize("options", OPTIONS)
def test_translations_and_leads_are_those_of_pytorch(options: str) -> None:
    model = random_model(5, VOCABULARY, **OPTIONS[options])
    sources = random_sources(model, 3, 20)
    expected = generate_greedy(model, sources)
    found = translate_greedy(to_weights(model), sources)
    assert [each.target_ids for each in found] == [each.target_ids for each in expected]
    gaps: Any = [min(each.gaps) for each in expected]
    assert np.allclose([each.gap for each in found], gaps, atol=1e-4)
    means: Any = [each.score / len(each.gaps) for each in expected]
    assert np.allclose([each.log_probability for each in found], means, atol=1e-4)


@pytest.mark.parametrize("options", OPTIONS)
def test_shapes_are_those_of_the_parameters_of_pytorch(options: str) -> None:
    model = random_model(5, VOCABULARY, **OPTIONS[options])
    weights = to_weights(model)
    shapes = {name: value.shape for name, value in weights.parameters.items()}
    assert parameter_shapes(model.config, VOCABULARY) == shapes


@pytest.mark.parametrize("options", OPTIONS)
def test_a_model_of_pytorch_is_the_same_after_a_conversion_to_numpy_and_back(options: str) -> None:
    model = random_model(5, VOCABULARY, **OPTIONS[options])
    again = to_torch(to_weights(model))
    state = again.state_dict()
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    source = torch.tensor([[5, 6, 7, 3]])
    assert torch.equal(again.encode(source).states, model.encode(source).states)
