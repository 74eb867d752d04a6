"""The body of `Choose`, which is also the end of `Step`: the sum and the best tokens of each row of logits."""

import numpy as np
from onnx import TensorProto

from dragoman.export.graphs.native.body import Body
from dragoman.serve.bundle.manifest import CHOICE, LOGITS


def choose_body() -> Body:
    """Returns the body of `Choose`."""
    body = Body()
    choose(body, LOGITS)
    return body


def choose(body: Body, logits: str) -> None:
    """Makes the outputs `log_sums`, `best_scores` and `best_ids` of logits, float [M, V].

    The sum is that of LogSoftmax, whose bits depend neither on other rows nor on the place in memory. A row with NaN,
    with +inf or with only -inf has NaN for all log-probabilities.
    """
    log_sums, best_scores, best_ids = CHOICE
    log_probabilities = body.add("LogSoftmax", logits, axis=-1)
    difference = body.add("Sub", body.largest(logits, 1), body.largest(log_probabilities, 1))
    broken = body.add("IsNaN", body.first(log_probabilities, 1, 1))
    sums = body.add("Where", broken, body.number(np.nan), difference)  # [M, 1]
    body.add("Squeeze", sums, body.integers(1), into=log_sums)
    body.add("Sub", body.top(logits, body.cast("best_count", TensorProto.INT64), best_ids), sums, into=best_scores)
