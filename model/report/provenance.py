"""Under which conditions figures were obtained: command, machine, versions and date."""

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Self

import torch

LIBRARIES = ("torch", "matplotlib")


@dataclass(frozen=True, slots=True)
class Provenance:
    """What has to be known to judge a figure, and to obtain it again.

    Attributes:
        command: what was called.
        machine: its processor, and how many CPUs and threads computed.
        versions: of Python and of the libraries that matter.
        date: when, in UTC, as in 2026-11-21.
    """

    command: str
    machine: str
    versions: str
    date: str

    @classmethod
    def now(cls, command: str) -> Self:
        """Returns the conditions of this process."""
        libraries = ", ".join(f"{library} {version(library)}" for library in LIBRARIES)
        return cls(
            command,
            f"{_processor()}, CPUs: {os.cpu_count()}, PyTorch threads: {torch.get_num_threads()}",
            f"Python {platform.python_version()}, {libraries}",
            datetime.now(UTC).date().isoformat(),
        )

    def __str__(self) -> str:
        return f"Measured by `{self.command}` ({self.machine}; {self.versions}; {self.date})."


def _processor() -> str:
    """Returns the name of the processor, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
