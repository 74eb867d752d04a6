"""Admission control: bounds the rows that run and wait together, and counts running sequences.

Rows reserved for requests that are still being tokenized count as waiting: surplus requests are refused before their
texts are processed, and an admitted request always finds room later. Not thread-safe: a scheduler holds its lock around
every call.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from dragoman.serve.errors import DrainingError, QueueFullError
from dragoman.serve.scheduler.sequence import DecodingSequence


class Reservation:
    """Rows reserved for one request; a context manager that releases the rows that no sequence has taken.

    Attributes:
        on_exit: called once when the request is over.
    """

    def __init__(self, rows: int, resize: Callable[["Reservation", int, int], None]) -> None:
        self.rows = rows
        self.on_exit: Callable[[], None] = lambda: None
        self._resize = resize

    def resize(self, rows: int, spare_rows: int = 0) -> None:
        """Changes the number of reserved rows.

        Args:
            spare_rows: rows that must stay free for other requests if the reservation grows.

        Raises:
            QueueFullError: if the reservation grows and there is no room.
        """
        self._resize(self, rows, spare_rows)

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Releases the rows; a second exit does nothing."""
        self._resize(self, 0, 0)
        on_exit, self.on_exit = self.on_exit, lambda: None
        on_exit()


@dataclass(slots=True)
class Running:
    """Counts of the running sequences over all engines.

    Attributes:
        token_budget: maximum of tokens that run together; None: no bound. A larger sequence runs alone.
        tokens: sum of `max_tokens` over the sequences.
    """

    token_budget: int | None
    sequences: int = 0
    rows: int = 0
    tokens: int = 0

    def has_room(self, sequence: DecodingSequence) -> bool:
        """Whether the token budget lets the sequence start now."""
        if self.token_budget is None or not self.sequences:
            return True
        return self.tokens + max_tokens(sequence) <= self.token_budget

    def add(self, sequence: DecodingSequence) -> None:
        """Counts a starting sequence."""
        self.sequences += 1
        self.rows += sequence.options.rows
        self.tokens += max_tokens(sequence)

    def remove(self, sequence: DecodingSequence) -> None:
        """Counts a finished sequence."""
        self.sequences -= 1
        self.rows -= sequence.options.rows
        self.tokens -= max_tokens(sequence)


def max_tokens(sequence: DecodingSequence) -> int:
    """Returns rows x (source tokens + longest target), an upper bound of the tokens of the sequence."""
    return sequence.options.rows * (len(sequence.source_ids) + sequence.options.max_target_tokens)


@dataclass(slots=True)
class Admission:
    """Bounds the rows that run and wait together.

    Attributes:
        capacity_rows: the bound.
        reserved_rows: rows of requests that are still being tokenized.
        draining: refuses all new requests.
    """

    capacity_rows: int
    reserved_rows: int = 0
    draining: bool = False

    def check_open(self) -> None:
        """Checks that new requests are accepted; raises DrainingError while draining."""
        if self.draining:
            raise DrainingError("the server is shutting down")

    def check_room(self, rows: int, *, running_rows: int, waiting_rows: int) -> None:
        """Checks that `rows` more rows fit next to those that run and wait.

        Raises:
            DrainingError: while draining.
            QueueFullError: if they do not fit.
        """
        self.check_open()
        waiting_rows += self.reserved_rows
        if running_rows + waiting_rows + rows > self.capacity_rows:
            raise QueueFullError(
                f"{rows} more rows do not fit: {running_rows} rows run and {waiting_rows} wait, "
                f"expected at most {self.capacity_rows} together; try again later"
            )
