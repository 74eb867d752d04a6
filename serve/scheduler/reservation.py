"""Rows that are kept for a request while its texts are made into sequences.

Made by `serve.scheduler.scheduler`, which counts them as if they waited: what comes too much is refused before
anybody has looked at its texts, and what was let in is never refused afterwards for want of room.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Self


class Reservation:
    """Rows of one request; a context manager, which gives back what no sequence has taken.

    Attributes:
        rows: how many are kept now.
        on_exit: called when the request is over.
    """

    def __init__(self, rows: int, resize: Callable[["Reservation", int, int], None]) -> None:
        """Keeps nothing by itself.

        Args:
            rows: that the scheduler has kept.
            resize: the scheduler's.
        """
        self.rows = rows
        self.on_exit: Callable[[], None] = lambda: None
        self._resize = resize

    def resize(self, rows: int, spare_rows: int = 0) -> None:
        """Keeps so many rows instead.

        Args:
            rows: how many.
            spare_rows: how many more must be free, for others, if they are more than before.

        Raises:
            QueueFullError: if they are more, and there is no room for them.
        """
        self._resize(self, rows, spare_rows)

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Gives the rows back; a second time, there is nothing left to do."""
        self._resize(self, 0, 0)
        on_exit, self.on_exit = self.on_exit, lambda: None
        on_exit()
