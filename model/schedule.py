"""The learning rate of "Attention Is All You Need"."""


def inverse_square_root(step: int, d_model: int, warmup_steps: int, factor: float = 1.0) -> float:
    """Returns the learning rate at an optimiser step, counted from 1.

    factor * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5): linear warm-up, then decay with the inverse square
    root of the step (Vaswani et al. 2017, equation 3).
    """
    return factor * float(d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))
