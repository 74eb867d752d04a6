"""The formulas of the papers in NumPy and float64, slow and obvious: what fast code is compared with."""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def softmax(scores: Array) -> Array:
    """Returns probabilities along the last axis."""
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))


def attention(queries: Array, keys: Array, values: Array, mask: NDArray[np.bool_]) -> Array:
    """Attends with one head: softmax(Q K^T / sqrt(D)) V, where the mask is True (Vaswani et al. 2017, equation 1).

    Args:
        queries: [T, D].
        keys: [S, D].
        values: [S, D].
        mask: [T, S].
    """
    rows = []
    for query, allowed in zip(queries, mask, strict=True):
        scores = np.array([query @ key / math.sqrt(len(query)) for key in keys[allowed]])
        rows.append(softmax(scores) @ values[allowed])
    return np.stack(rows)


def layer_norm(states: Array, weight: Array, bias: Array, epsilon: float = 1e-5) -> Array:
    """Returns (x - mean) / sqrt(variance + epsilon) * weight + bias (Ba et al. 2016), over the last axis."""
    mean = states.mean(axis=-1, keepdims=True)
    variance = ((states - mean) ** 2).mean(axis=-1, keepdims=True)
    return np.asarray((states - mean) / np.sqrt(variance + epsilon) * weight + bias)


def sinusoidal_positions(length: int, d_model: int) -> Array:
    """Returns the position encodings, [length, d_model] (Vaswani et al. 2017, section 3.5)."""
    encodings = np.zeros((length, d_model))
    for position in range(length):
        for i in range(d_model // 2):
            angle = position / 10000 ** (2 * i / d_model)
            encodings[position, 2 * i : 2 * i + 2] = math.sin(angle), math.cos(angle)
    return encodings


def label_smoothed_loss(logits: Array, labels: list[list[int]], smoothing: float, pad_id: int) -> float:
    """Returns the mean loss per real token: cross-entropy with (1 - smoothing) on the label and the rest spread evenly.

    Args:
        logits: [B, T, V].
        labels: [B, T]; `pad_id` is no token.
        smoothing: share of the probability that is spread over the vocabulary (Szegedy et al. 2016, section 7).
        pad_id: fills up the rows.
    """
    losses = []
    for row, row_labels in zip(logits, labels, strict=True):
        for scores, label in zip(row, row_labels, strict=True):
            if label == pad_id:
                continue
            expected = np.full(len(scores), smoothing / len(scores))
            expected[label] += 1 - smoothing
            losses.append(-(expected * np.log(softmax(scores))).sum())
    return float(np.mean(losses))
