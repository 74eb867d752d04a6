"""Patience: early stopping of beam search by the number of finished hypotheses (Kasai et al. 2022, section 2)."""


def enough_hypotheses(patience: float, beam_size: int) -> int:
    """Returns how many finished hypotheses end the search of a beam: round(patience * K), but at least one."""
    return max(1, round(patience * beam_size))
