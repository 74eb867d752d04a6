"""The training loss, and the schedules of learning rate and dropout.

The loss is label-smoothed cross-entropy, with R-Drop and guided alignment on request.

The logits of a batch are its largest tensor by far. The loss computes them and their gradient a few positions at a
time, so that they stay in the processor's cache and take little memory. On a CPU this takes half the time of computing
all logits first (1,024 positions, 5,000 tokens, bfloat16). The gradient is multiplied for more positions at once,
because each product adds to the gradient of all output weights. Schedules are shares of the highest value.

Shapes: P passes over the same batch, N positions, D width of the states, V vocabulary.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from dragoman.model.tokenizer.tokenizer import PAD_ID
from dragoman.model.weights import FORBIDDEN


def inverse_square_root(step: int, warmup_steps: int) -> float:
    """Returns the share of the highest learning rate at an optimizer step, counted from 1.

    min(step / warmup_steps, sqrt(warmup_steps / step)): linear warm-up, then decay with the inverse square root of the
    step (Vaswani et al. 2017, equation 3, where the highest rate is d_model^-0.5 * warmup_steps^-0.5).
    """
    return min(step / warmup_steps, math.sqrt(warmup_steps / step))


def cosine(step: int, warmup_steps: int, max_steps: int) -> float:
    """Returns the share of the highest learning rate at an optimizer step, counted from 1.

    Linear warm-up, then half a cosine period that ends at zero: (1 + cos(pi * progress)) / 2 with progress from 0 to 1
    (Loshchilov and Hutter 2017, arXiv:1608.03983, equation 5, without restarts).
    """
    if step <= warmup_steps:
        return step / warmup_steps
    progress = min(1.0, (step - warmup_steps) / max(1, max_steps - warmup_steps))
    return (1 + math.cos(math.pi * progress)) / 2


def linear_rise(step: int, rise_steps: int) -> float:
    """Returns the share of dropout at an optimizer step, counted from 0: min(1, step / rise_steps).

    A model learns alignments faster without dropout and needs it only later, against overfitting (curriculum dropout,
    Morerio et al. 2017, arXiv:1703.06229, linear instead of exponential).
    """
    return min(1.0, step / rise_steps) if rise_steps else 1.0


def cooldown(step: int, max_steps: int, cooldown_steps: int) -> float:
    """Returns the factor that lowers the learning rate to zero over the last steps; 1 before them.

    min(1, (max_steps + 1 - step) / (cooldown_steps + 1)) (Haegele et al. 2024, arXiv:2405.18392).
    """
    return min(1.0, (max_steps + 1 - step) / (cooldown_steps + 1))


# Rows of logits computed at once. On a CPU, 128 of 5,000 floats are 2.5 MB; a GPU needs many rows at once.
CPU_CHUNK_ROWS = 128
# Rows of gradients multiplied at once.
CPU_GROUP_ROWS = 512
# Rows of both on a GPU.
GPU_ROWS = 16_384


def translation_loss(
    states: Tensor,
    output_weight: Tensor,
    labels: Tensor,
    label_smoothing: float = 0.0,
    r_drop: float = 0.0,
    *,
    output_bias: Tensor | None = None,
    pad_id: int = PAD_ID,
) -> Tensor:
    """Returns the mean loss per real label and pass, in nats; a scalar.

    With one pass: -(1 - e) log p(y) - e / V sum_v log p(v), where e is `label_smoothing` (Szegedy et al. 2016,
    arXiv:1512.00567, section 7). With two passes, in which dropout differs: the mean of both, plus r_drop / 2 * (KL(p_1
    || p_2) + KL(p_2 || p_1)) / 2 (Liang et al. 2021, arXiv:2106.14448, equation 4, halved as the sum of the two
    cross-entropies is). Shapes: `states` float [P, N, D], `output_weight` [V, D], `labels` int64 [N], where `pad_id` is
    ignored, and `output_bias` [V], which has no gradient. Tokens with the bias FORBIDDEN take no part in the smoothing.
    """
    arguments = states, output_weight, labels, label_smoothing, r_drop, output_bias, pad_id
    loss: Tensor = _ProjectedLoss.apply(*arguments)  # type: ignore[no-untyped-call]
    return loss


def alignment_loss(weights: Tensor, alignments: Tensor) -> Tensor:
    """Returns the cross-entropy between alignments and attention weights, both float [B, T, S], in nats; a scalar.

    The mean of -sum_s A_ts log a_ts over the target tokens t with links (Chen et al. 2016, arXiv:1607.01628, equation
    9). Tokens without links, whose row in A is 0, do not count.
    """
    logarithms = weights.float().clamp(min=torch.finfo(torch.float32).tiny).log()
    return -(alignments * logarithms).sum() / alignments.sum().clamp(min=1.0)


class _ProjectedLoss(torch.autograd.Function):
    """Output projection and loss in one function: frees logits once their gradient is computed."""

    @staticmethod
    def forward(  # noqa: PLR0917  autograd passes by position
        ctx: Any,
        states: Tensor,
        output_weight: Tensor,
        labels: Tensor,
        label_smoothing: float,
        r_drop: float,
        output_bias: Tensor | None,
        pad_id: int,
    ) -> Tensor:
        device = states.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else output_weight.dtype
        weight = output_weight.to(dtype)
        states_gradient = torch.empty_like(states, dtype=torch.float32)
        # Frozen weights need no gradient, which takes as much memory as they do.
        weight_gradient = torch.zeros_like(output_weight) if ctx.needs_input_grad[1] else None
        allowed = states.new_ones(len(weight)) if output_bias is None else (output_bias > FORBIDDEN).float()  # [V]
        uniform = allowed * (label_smoothing / allowed.sum())
        loss = torch.zeros((), device=states.device)
        chunk_rows, group_rows = (CPU_CHUNK_ROWS, CPU_GROUP_ROWS) if device == "cpu" else (GPU_ROWS, GPU_ROWS)
        with torch.autocast(device, enabled=False):
            for group in _slices(len(labels), group_rows // len(states)):
                inputs, expected = states[:, group].to(dtype), labels[group]  # [P, g, D], [g]
                gradients = inputs.new_empty(*inputs.shape[:2], len(weight))  # [P, g, V]
                for chunk in _slices(len(expected), chunk_rows // len(states)):
                    logits = functional.linear(inputs[:, chunk].flatten(end_dim=1), weight).float()  # [P * n, V]
                    logits = logits.view(len(states), -1, len(weight))
                    if output_bias is not None:
                        logits += output_bias
                    real = (expected[chunk] != pad_id)[:, None]  # [n, 1]
                    chunk_loss, gradient = _loss_and_gradient(
                        logits, expected[chunk], real, (label_smoothing, uniform), r_drop
                    )
                    loss += chunk_loss
                    gradients[:, chunk] = gradient
                flat = gradients.flatten(end_dim=1)  # [P * g, V]
                states_gradient[:, group] = (flat @ weight).float().view(inputs.shape)
                if weight_gradient is not None:
                    weight_gradient += flat.T @ inputs.flatten(end_dim=1)
        count = len(states) * (labels != pad_id).sum().clamp(min=1)
        if weight_gradient is not None:
            weight_gradient /= count
        ctx.save_for_backward((states_gradient / count).to(states.dtype), weight_gradient)
        return loss / count

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        states_gradient, weight_gradient = ctx.saved_tensors
        weight_gradient = None if weight_gradient is None else gradients[0] * weight_gradient
        return gradients[0] * states_gradient, weight_gradient, None, None, None, None, None


def _slices(length: int, size: int) -> Iterator[slice]:
    """Yields slices of at most `size` that cover a length."""
    return (slice(start, start + size) for start in range(0, length, size))


def _loss_and_gradient(
    logits: Tensor, labels: Tensor, real: Tensor, smoothing: tuple[float, Tensor], r_drop: float
) -> tuple[Tensor, Tensor]:
    """Returns the sum of the loss over logits [P, n, V] with labels [n], and its gradient for the logits.

    `real`, bool [n, 1], is False at padding. `smoothing` is its mass, and that of each token, [V].
    """
    label_smoothing, uniform = smoothing
    probabilities = logits.softmax(dim=-1)
    # log p(v) = logit(v) - normalizer. The most probable token's probability is at least 1 / V, so its logarithm is
    # finite.
    normalizers = logits.amax(dim=-1, keepdim=True) - probabilities.amax(dim=-1, keepdim=True).log()  # [P, n, 1]
    index = labels.expand(len(logits), -1)[:, :, None]  # [P, n, 1]
    losses = normalizers - (1 - label_smoothing) * logits.gather(2, index)
    losses -= (logits @ uniform)[:, :, None]
    divergence_gradient = None
    if len(logits) == 2 and r_drop:  # noqa: PLR2004  two passes
        divergences, divergence_gradient = _divergence(logits - normalizers, probabilities)
        losses[0] += r_drop * divergences
    # From here on, `probabilities` becomes the gradient in place.
    gradient = probabilities.sub_(uniform)
    gradient.scatter_add_(2, index, torch.full_like(losses, label_smoothing - 1))
    if divergence_gradient is not None:
        gradient.add_(divergence_gradient, alpha=r_drop)
    return (losses * real).sum(), gradient.mul_(real)


def _divergence(log_probabilities: Tensor, probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Returns (KL(p_1 || p_2) + KL(p_2 || p_1)) / 2 of two passes, [n, 1], and its gradient for the logits [2, n, V].

    With d = log p_1 - log p_2, dKL(p_1 || p_2) / dz_1 = p_1 (d - KL(p_1 || p_2)), and dKL(p_2 || p_1) / dz_1 is
    p_1 - p_2. The other pass is the mirror image.
    """
    difference = log_probabilities[0] - log_probabilities[1]
    first, second = probabilities
    forward = (first * difference).sum(dim=-1, keepdim=True)
    backward = -(second * difference).sum(dim=-1, keepdim=True)
    apart = first - second
    gradient = torch.stack((first * (difference - forward) + apart, second * (-difference - backward) - apart))
    return (forward + backward) / 2, gradient / 2
