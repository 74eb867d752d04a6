"""How learning rate and dropout rise and fall over the steps, as shares of the highest value."""

import math


def inverse_square_root(step: int, warmup_steps: int) -> float:
    """Returns the share of the highest learning rate at an optimiser step, counted from 1.

    min(step / warmup_steps, sqrt(warmup_steps / step)): linear warm-up, then decay with the inverse square root of the
    step (Vaswani et al. 2017, equation 3, where the highest rate is d_model^-0.5 * warmup_steps^-0.5).
    """
    return min(step / warmup_steps, math.sqrt(warmup_steps / step))


def cosine(step: int, warmup_steps: int, max_steps: int) -> float:
    """Returns the share of the highest learning rate at an optimiser step, counted from 1.

    Linear warm-up, then half a period of a cosine that ends at zero: (1 + cos(pi * progress)) / 2, where progress goes
    from 0 to 1 (Loshchilov and Hutter 2017, arXiv:1608.03983, equation 5, without restarts).
    """
    if step <= warmup_steps:
        return step / warmup_steps
    progress = min(1.0, (step - warmup_steps) / max(1, max_steps - warmup_steps))
    return (1 + math.cos(math.pi * progress)) / 2


def linear_rise(step: int, rise_steps: int) -> float:
    """Returns the share of dropout at an optimiser step, counted from 0: min(1, step / rise_steps).

    A model learns what attends to what more quickly while nothing is dropped, and needs dropout only later, when it
    could learn sentences by heart (curriculum dropout, Morerio et al. 2017, arXiv:1703.06229, with a straight line for
    its exponential).
    """
    return min(1.0, step / rise_steps) if rise_steps else 1.0


def cooldown(step: int, max_steps: int, cooldown_steps: int) -> float:
    """Returns the factor that takes the learning rate to zero over the last steps; 1 before them.

    min(1, (max_steps + 1 - step) / (cooldown_steps + 1)): a run of fixed length gains by ending at a rate near zero
    (Haegele et al. 2024, arXiv:2405.18392).
    """
    return min(1.0, (max_steps + 1 - step) / (cooldown_steps + 1))
