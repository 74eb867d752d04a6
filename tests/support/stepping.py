"""Steps of a model without the engine: all logits, single copies, and the tensors that hold the rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from serve.runtime.model import Model
from serve.runtime.native import NativeRuntime


def logits_of_step(
    model: Model,
    token_ids: NDArray[np.int64],
    positions: NDArray[np.int32],
    source_lengths: NDArray[np.int32],
    *,
    aligned: bool = False,
) -> NDArray[np.float32]:
    """Runs a step; returns the logits of all rows, float32 [R, V], valid until the next step."""
    rows = np.arange(len(token_ids))
    return model.step(token_ids, positions, source_lengths, scored_rows=rows, aligned=aligned).fetch(rows)


def copy_row(model: Model, source: int, target: int, positions: int, source_length: int) -> None:
    """Copies one row over another."""
    model.copy_rows([source], [target], [positions], [source_length])


def kept_tensors(model: Any) -> list[NDArray[Any]]:
    """Returns the tensors of a host runtime that hold its rows, slots first."""
    if isinstance(model, NativeRuntime):
        return [*model._targets.values(), *model._sources.values()]
    return list(model._state.inputs.values())
