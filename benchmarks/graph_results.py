"""What `dragoman bench graphs` has its systems do, and what it measured of them. Knows no torch."""

from dataclasses import dataclass
from typing import Any

from benchmarks.harness.rounds import Round
from model.scoring import Measure

SEED = 1


@dataclass(frozen=True, slots=True)
class Workload:
    """What the systems do.

    Attributes:
        rows: sources that each thread decodes at a time; a task for each number.
        threads: so many.
        source_tokens: length of each source, EOS included.
        target_tokens: length of each target.
        rounds: in which every system has a turn at every task.
        turn_seconds: the least length of a turn, about.
    """

    rows: tuple[int, ...]
    threads: int
    source_tokens: int
    target_tokens: int
    rounds: int
    turn_seconds: float

    def tasks(self) -> dict[str, dict[str, Any]]:
        """Returns the tasks by their number of rows, the fewest first."""
        lengths = {"source_tokens": self.source_tokens, "target_tokens": self.target_tokens}
        return {str(rows): {"seed": SEED, "rows": rows, **lengths} for rows in sorted(self.rows)}


@dataclass(frozen=True, slots=True)
class SystemResult:
    """What was measured of one system.

    Attributes:
        name: of the system.
        peer: the name of the one that it is compared with.
        size_bytes: of its files.
        rounds: what it did in each.
        bleu: of its translations, if they were measured.
    """

    name: str
    peer: str | None
    size_bytes: int
    rounds: list[Round]
    bleu: Measure | None


@dataclass(frozen=True, slots=True)
class ModelResult:
    """What was measured of all systems of one model."""

    name: str
    description: str
    systems: list[SystemResult]
