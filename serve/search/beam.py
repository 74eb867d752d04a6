"""One step of beam search for one sequence, with the semantics of the beam search in training.

`expand` ranks the candidates, `survivors` selects the next beam, and `place` assigns rows so that few states are
copied. The caller ranks finished hypotheses and decides when a search ends. K is the beam size.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from dragoman.serve.search.live import LiveHypothesis, Token


class Candidate(NamedTuple):
    """A one-token expansion of a hypothesis; `score` is the sum of the log-probabilities of all tokens."""

    score: float
    origin: LiveHypothesis
    token: Token


class Branch(NamedTuple):
    """A copy of the state of a row whose hypothesis continues in several: its first `positions` tokens."""

    source: int
    target: int
    positions: int


class Placement(NamedTuple):
    """The origins of the next beam in their rows, and the copies that put them there.

    No row is both source and target of a copy: copies may happen in any order.
    """

    origins: list[LiveHypothesis]
    branches: list[Branch]


def expand(beam: Sequence[LiveHypothesis], tokens: Sequence[Sequence[Token]], beam_size: int) -> list[Candidate]:
    """Returns the best 2K candidates. Ties go to the better hypothesis, then to the earlier of its tokens.

    At most K of the 2K end, one per hypothesis, so enough remain to fill the beam. The best 2K of all hypotheses are
    among the best 2K of each, so these suffice as input. Tokens of probability 0 are no candidates.

    Args:
        beam: the hypotheses, best first.
        tokens: the best 2K tokens of each, best first.
        beam_size: K.
    """
    candidates = [
        Candidate(origin.score + token.score, origin, token)
        for origin, best in zip(beam, tokens, strict=True)
        for token in best
        if token.score != float("-inf")
    ]
    return sorted(candidates, key=lambda candidate: -candidate.score)[: 2 * beam_size]


def ended(candidates: Sequence[Candidate], beam_size: int, eos_id: int) -> list[Candidate]:
    """Returns the candidates that end among the first K, which finish their hypotheses.

    A later one finishes nothing: its hypothesis is no longer among the best K.
    """
    return [candidate for candidate in candidates[:beam_size] if candidate.token.token_id == eos_id]


def survivors(candidates: Sequence[Candidate], beam_size: int, eos_id: int) -> list[Candidate]:
    """Returns the first K candidates that do not end: the next beam."""
    return [candidate for candidate in candidates if candidate.token.token_id != eos_id][:beam_size]


def place(following: Sequence[Candidate], rows: Sequence[int]) -> Placement:
    """Assigns rows to the survivors with the fewest copies of states.

    The first survivor of an origin keeps its row. Each further one takes a row without a survivor.

    Args:
        following: the survivors, at most K.
        rows: the K rows of the sequence.
    """
    kept = {candidate.origin.row for candidate in following}
    free = [row for row in rows if row not in kept]
    origins: list[LiveHypothesis] = []
    branches: list[Branch] = []
    for candidate in following:
        origin = candidate.origin
        if origin.row in kept:
            kept.remove(origin.row)
            origins.append(origin)
        else:
            # The step that has just run has also read the last token, or the begin token.
            branches.append(Branch(origin.row, free.pop(), len(origin.tokens) + 1))
            origins.append(replace(origin, row=branches[-1].target))
    return Placement(origins, branches)
