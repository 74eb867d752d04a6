"""Who may use CUDA while a CUDA graph is captured: nobody else in the process.

ONNX Runtime captures in CUDA's global mode, in which a call from any thread that allocates or copies spoils the
capture. Engines of several GPUs capture while they get ready, and those of a new model while another one serves. So a
capture is alone, for the few milliseconds that it takes, and everything else runs side by side.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class CaptureGate:
    """Lets many users through at a time, or one capture."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._users = 0
        self._captures = 0  # that wait or go on: nobody else gets in meanwhile, or they would wait for ever

    @contextmanager
    def use(self) -> Iterator[None]:
        """Keeps captures out while the block runs; not to be nested."""
        with self._condition:
            self._condition.wait_for(lambda: not self._captures)
            self._users += 1
        try:
            yield
        finally:
            with self._condition:
                self._users -= 1
                self._condition.notify_all()

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Keeps everybody else out while the block runs."""
        with self._condition:
            self._captures += 1
            self._condition.wait_for(lambda: not self._users)
            self._users += 1
        try:
            yield
        finally:
            with self._condition:
                self._users -= 1
                self._captures -= 1
                self._condition.notify_all()


# Of the process, as CUDA's mode is.
GATE = CaptureGate()
