"""What the engine needs of a model, whatever computes it.

`serve.runtime.cpu` does on the CPU, `serve.runtime.cuda.runtime` on a device; in tests it is a fake. Knows neither
search nor sequences. Used by `serve.engine.engine` and by whoever hands it a model.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from serve.runtime.scores import Scores


class Model(Protocol):
    """What the engine needs of a model: a few computations, and rows that can be copied.

    A row is a place in the model's state; the running rows are always 0 to R - 1. B sources, A alignment heads, S most
    source tokens.
    """

    @property
    def slots(self) -> int:
        """The most running rows."""

    @property
    def ahead(self) -> int:
        """Further rows, behind those, for what is encoded before there is a slot for it."""

    @property
    def alignments(self) -> NDArray[np.float32]:
        """Where each row looked in the last step, float32 [slots, A, S]; A is 0 if the model does not tell."""

    def encode(self, source_ids: NDArray[np.int64], source_lengths: NDArray[np.int32], rows: NDArray[np.int64]) -> None:
        """Encodes sources and keeps what the decoder needs of each in its row.

        Args:
            source_ids: int64 [B, S], padded on the right.
            source_lengths: int32 [B], source tokens without padding.
            rows: int64 [B].
        """

    def prepare(self) -> None:
        """Gets ready for steps, once, in the thread that will make them; what it takes its time for is done then."""

    def step(
        self,
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
        *,
        held: int = 0,
    ) -> Scores:
        """Computes one step of rows 0 to R - 1 and moves their state on by it.

        Args:
            token_ids: int64 [R], the last token of each row.
            positions: int32 [R], its position; the row has read that many tokens already.
            source_lengths: int32 [R].
            held: rows that hold anything, if more than R; those behind hold nothing any more. Their sources are no
                longer than the longest of the R, except behind `slots`.

        Returns:
            what it says of the next tokens, valid until the next call.
        """

    def branch_rows(self, sources: Sequence[int], targets: Sequence[int], positions: Sequence[int]) -> None:
        """Copies rows over others of the same source, `positions` tokens of each; no row is a source and a target."""

    def copy_rows(
        self,
        sources: Sequence[int],
        targets: Sequence[int],
        positions: Sequence[int],
        source_lengths: Sequence[int],
    ) -> None:
        """Copies the states of rows over those of others.

        Args:
            sources: the rows to copy.
            targets: the rows to overwrite, all different; none of them is a source.
            positions: tokens that each row has read.
            source_lengths: source tokens of each row.
        """
