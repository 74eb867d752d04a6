"""Weights of PyTorch convert to NumPy and back without a change."""

import pytest
import torch

from dragoman.export.torch_weights import to_torch, to_weights
from dragoman.model.weights import parameter_shapes
from tests.support.toy import OPTIONS, random_model

VOCABULARY = 50


@pytest.mark.parametrize("options", OPTIONS)
def test_shapes_are_those_of_the_parameters_of_pytorch(options: str) -> None:
    model = random_model(5, VOCABULARY, **OPTIONS[options])
    shapes = {name: value.shape for name, value in to_weights(model).parameters.items()}
    assert parameter_shapes(model.config, VOCABULARY) == shapes


@pytest.mark.parametrize("options", OPTIONS)
def test_a_model_of_pytorch_is_the_same_after_a_conversion_to_numpy_and_back(options: str) -> None:
    model = random_model(5, VOCABULARY, **OPTIONS[options])
    again = to_torch(to_weights(model))
    state = again.state_dict()
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    source = torch.tensor([[5, 6, 7, 3]])
    assert torch.equal(again.encode(source).states, model.encode(source).states)
