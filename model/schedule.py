"""The learning rate of "Attention Is All You Need", and a way to end it."""


def inverse_square_root(step: int, d_model: int, warmup_steps: int, factor: float = 1.0) -> float:
    """Returns the learning rate at an optimiser step, counted from 1.

    factor * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5): linear warm-up, then decay with the inverse square
    root of the step (Vaswani et al. 2017, equation 3).
    """
    return factor * float(d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


def cooldown(step: int, max_steps: int, cooldown_steps: int) -> float:
    """Returns the factor that takes the learning rate to zero over the last steps; 1 before them.

    min(1, (max_steps + 1 - step) / (cooldown_steps + 1)): a run of fixed length gains by ending at a rate near zero
    (Haegele et al. 2024, arXiv:2405.18392).
    """
    return min(1.0, (max_steps + 1 - step) / (cooldown_steps + 1))
