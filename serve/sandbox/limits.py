"""What a parser may use. The kernel enforces memory and CPU time, the template wall time, the server output."""

import math
from dataclasses import dataclass
from typing import Literal

MEBIBYTE = 1 << 20
SECONDS_PER_MEBIBYTE = 4
# The niceness of workers lets other processes of a busy machine run before them.
WALL_SECONDS_PER_CPU_SECOND = 6.0

# Parsers of different purposes run at the same time, those of one purpose one after the other.
Purpose = Literal["documents", "glossaries", "forms", "probes"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one call.

    Attributes:
        memory_bytes: of the address space, beyond that of an idle worker.
        cpu_seconds, wall_seconds: from the start of the call, without the time in the queue.
        output_bytes: of all frames of the result.
    """

    memory_bytes: int
    cpu_seconds: int
    wall_seconds: float
    output_bytes: int

    @classmethod
    def of_input(cls, input_bytes: int, *, memory_bytes: int, output_bytes: int, base_seconds: int) -> "Limits":
        """Returns limits whose time grows with the input, for parsers that take linear time."""
        cpu_seconds = base_seconds + math.ceil(SECONDS_PER_MEBIBYTE * input_bytes / MEBIBYTE)
        return cls(memory_bytes, cpu_seconds, WALL_SECONDS_PER_CPU_SECOND * cpu_seconds, output_bytes)
