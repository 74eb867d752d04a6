"""A translation that ends by itself has no end token; one that is cut keeps its last token."""

import numpy as np
import pytest

from dragoman.serve.search.hypothesis import FinishReason
from dragoman.serve.search.live import LiveHypothesis, Token
from dragoman.serve.search.options import SearchOptions

END = 3


@pytest.mark.parametrize(("last", "target_ids", "reason"), [(END, (7, 8), "EOS"), (9, (7, 8, 9), "LENGTH")])
def test_tokens_and_alignments_are_those_of_the_text_and_scores_are_those_of_all_steps(
    last: int, target_ids: tuple[int, ...], reason: str
) -> None:
    live = LiveHypothesis(row=0)
    for step, token_id in enumerate((7, 8, last)):
        live = live.extended(Token(token_id, -1.0 - step), np.array([step, 1 - step], np.float32))
    found = live.finished(SearchOptions(max_target_tokens=9, alignments=True, length_penalty=1.0), 2, END)
    assert (found.target_ids, found.finish_reason) == (target_ids, FinishReason[reason])
    assert (found.token_scores, found.score, found.normalized_score) == ((-1.0, -2.0, -3.0), -6.0, -2.0)
    assert found.alignments is not None
    assert found.alignments.tolist() == [[0, 1], [1, 0], [2, -1]][: len(target_ids)]
