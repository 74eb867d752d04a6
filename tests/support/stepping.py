"""Steps of a model without the engine: all logits, and the tensors that hold the rows."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.runtime.model import Model


def logits_of_step(
    model: Model,
    token_ids: NDArray[np.int64],
    positions: NDArray[np.int32],
    source_lengths: NDArray[np.int32],
    *,
    aligned: bool = False,
) -> NDArray[np.float32]:
    """Runs a step of the first R rows; returns their logits, float32 [R, V]."""
    rows = np.arange(len(token_ids))
    return model.step(rows, token_ids, positions, source_lengths, scored_rows=rows, aligned=aligned).fetch(rows)


def each(rows: Iterable[int]) -> list[list[int]]:
    """Returns rows as those of one source each."""
    return [[row] for row in rows]


def kept_tensors(model: Any) -> list[NDArray[Any]]:
    """Returns the tensors of a host runtime that hold its rows, slots first."""
    return [*model._targets.values(), *model._sources.values()]
