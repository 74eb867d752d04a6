"""The shortlists of rows in the body of `Step`: logits of all tokens outside of a row's list become -inf."""

import numpy as np
from onnx import TensorProto

from dragoman.export.graphs.native.body import Body
from dragoman.serve.bundle.manifest import CANDIDATE_INPUTS


def keep_candidates(body: Body, logits: str) -> str:
    """Returns logits of rows, float [R, V]. A row with an empty range keeps all of them, and so do rows without one."""
    ids, ranges = CANDIDATE_INPUTS
    shape, rows = body.add("Shape", logits), body.add("Shape", logits, end=1)
    count = body.add("Shape", ids)  # [1]
    missing = body.add("Sub", rows, body.add("Shape", ranges, end=1))
    padded = body.add(
        "Pad", body.cast(ranges, TensorProto.INT64), body.concat([body.integers(0, 0), missing, body.integers(0)], 0)
    )
    begin, end = body.split(padded, 2, 1)  # [R, 1]
    zero, one = (body.constant(np.array(number, np.int64)) for number in (0, 1))
    places = body.add("Range", zero, body.add("Squeeze", count), one)  # [N]
    listed = body.add("And", body.add("LessOrEqual", begin, places), body.add("Less", places, end))  # [R, N]
    tokens = body.add("Expand", body.cast(ids, TensorProto.INT64), body.concat([rows, count], 0))
    chosen = body.add(
        "ScatterElements",
        body.add("ConstantOfShape", shape),
        tokens,
        body.cast(listed, TensorProto.FLOAT),
        axis=1,
        reduction="max",
    )
    kept = body.add("Or", body.cast(chosen, TensorProto.BOOL), body.add("Equal", begin, end))  # [R, V]
    return body.add("Where", kept, logits, body.number(-np.inf))
