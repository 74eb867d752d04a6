"""PyTorch models from NumPy weights, and back."""

import numpy as np
import torch

from dragoman.model.network.transformer import Transformer
from dragoman.model.weights import FORBIDDEN, TransformerWeights


def to_torch(weights: TransformerWeights) -> Transformer:
    """Returns a PyTorch model in evaluation mode that shares the weights; those of a file are copied."""
    with torch.device("meta"):
        model = Transformer(
            weights.config, weights.vocabulary_size, weights.pad_id, bos_id=weights.bos_id, eos_id=weights.eos_id
        )
    # PyTorch warns of arrays that are not writable.
    writable = {name: np.require(value, requirements=["W"]) for name, value in weights.parameters.items()}
    parameters = {name: torch.from_numpy(value) for name, value in writable.items()}
    for side in ("source", "target"):
        if weights.config.positions == "sinusoidal":  # not among the parameters
            getattr(model, f"{side}_positions").table = parameters.pop(f"{side}_positions.table")
    model.load_state_dict(parameters, assign=True)
    return model.eval().requires_grad_(requires_grad=False)


def to_weights(model: Transformer) -> TransformerWeights:
    """Returns the weights of a PyTorch model on the CPU, which they share; forbidden tokens have an infinite bias."""
    tables = {f"{side}_positions.table": getattr(model, f"{side}_positions").table for side in ("source", "target")}
    parameters = {name: value.detach().numpy() for name, value in {**model.state_dict(), **tables}.items()}
    if "output_bias" in parameters:
        bias = parameters["output_bias"]
        parameters["output_bias"] = np.where(bias > FORBIDDEN, bias, np.float32(-np.inf))
    return TransformerWeights(model.config, model.vocabulary_size, model.pad_id, model.bos_id, model.eos_id, parameters)
