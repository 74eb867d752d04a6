"""The folder and the limits of a run, and the commands of Dragoman within them."""

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.errors import BenchmarkError


@dataclass(slots=True)
class Work:
    """The folder of downloads and bundles, and the rest of the limits.

    Attributes:
        folder: an existing one.
        deadline: by the monotonic clock, in seconds.
        left_bytes: what may be downloaded.
    """

    folder: Path
    deadline: float
    left_bytes: float

    @property
    def left_seconds(self) -> float:
        """The time until the deadline, at least 0."""
        return max(0.0, self.deadline - time.monotonic())

    def is_over(self) -> bool:
        """Returns whether the deadline has passed."""
        return self.left_seconds == 0.0

    def check_time(self, _done_bytes: int, _total_bytes: int | None) -> None:
        """Raises BenchmarkError after the deadline, which ends a download that this function watches."""
        if self.is_over():
            raise BenchmarkError("the download is not finished in time")

    def take(self, size_bytes: int) -> None:
        """Subtracts the size of a model's files from the limit; raises BenchmarkError if they exceed its rest."""
        if size_bytes > self.left_bytes:
            left = f"{self.left_bytes / 1e6:,.1f} MB of the limit are left"
            raise BenchmarkError(f"the files have {size_bytes / 1e6:,.1f} MB, and {left}")
        self.left_bytes -= size_bytes

    def run(self, *arguments: str, given: str = "") -> str:
        """Returns what a command of Dragoman prints; raises BenchmarkError with its last line if it fails."""
        command = [sys.executable, "-m", "dragoman", *arguments]
        try:
            done = subprocess.run(  # noqa: S603 - our own command line
                command,
                input=given,
                capture_output=True,
                encoding="utf-8",
                # A command without time would not start.
                timeout=max(self.left_seconds, 0.1),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise BenchmarkError(f"dragoman {arguments[0]}: not finished in time") from error
        if done.returncode != 0:
            *_, last = [f"dragoman {arguments[0]}: status {done.returncode}", *filter(None, done.stderr.splitlines())]
            raise BenchmarkError(last)
        return done.stdout
