"""The formulas of the papers in NumPy and float64, slow and simple, as a reference for fast code."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def softmax(scores: Array) -> Array:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))


def layer_norm(states: Array, weight: Array, bias: Array, epsilon: float = 1e-5) -> Array:
    """Returns (x - mean) / sqrt(variance + epsilon) * weight + bias (Ba et al. 2016), over the last axis."""
    mean = states.mean(axis=-1, keepdims=True)
    variance = ((states - mean) ** 2).mean(axis=-1, keepdims=True)
    return np.asarray((states - mean) / np.sqrt(variance + epsilon) * weight + bias)


def rms_norm(states: Array, weight: Array, epsilon: float = 1e-5) -> Array:
    """Returns x / sqrt(mean(x^2) + epsilon) * weight (Zhang and Sennrich 2019, equation 4), over the last axis."""
    return np.asarray(states / np.sqrt((states**2).mean(axis=-1, keepdims=True) + epsilon) * weight)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    # Hendrycks and Gimpel 2016, section 2.
    "gelu": lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def sinusoidal_positions(length: int, d_model: int) -> Array:
    """Returns the position encodings, [length, d_model] (Vaswani et al. 2017, section 3.5)."""
    encodings = np.zeros((length, d_model))
    for position in range(length):
        for i in range(d_model // 2):
            angle = position / 10000 ** (2 * i / d_model)
            encodings[position, 2 * i : 2 * i + 2] = math.sin(angle), math.cos(angle)
    return encodings
