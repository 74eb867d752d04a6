"""What `dragoman bench offline` has its systems do, and what it measured of them. Knows no torch."""

import statistics
from dataclasses import dataclass

from benchmarks.agreement import Difference
from benchmarks.harness.rounds import Round
from benchmarks.systems.batching import Batching
from benchmarks.systems.source_sentence import SourceSentence
from serve.bundle.manifest import Precision

# Beam sizes by the names of the tasks; the larger beam needs the most memory, so it comes last.
SEARCHES = {"greedy": 1, "beam 4": 4}
# Tokens per second of one system in every pass, by search and by batching.
Trials = dict[str, dict[str, list[float]]]


@dataclass(frozen=True, slots=True)
class OfflineWorkload:
    """What the systems do.

    Attributes:
        sentences: what is translated as a whole.
        alone: how many of them are translated one at a time.
        trials: passes of each batching, where several are tried.
        rounds: in which every system has a turn at every task.
        batchings: which of them is best is tried for each system that translates batches.
        rows: the same for our engines.
        engines: those of ours; peers get as many threads as all engines together.
        threads: of each engine.
        alone_threads: numbers of threads for one sentence at a time; the best counts.
    """

    sentences: list[SourceSentence]
    alone: int
    trials: int
    rounds: int
    batchings: tuple[Batching, ...]
    rows: tuple[Batching, ...]
    engines: int
    threads: int
    alone_threads: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OfflineResult:
    """What was measured of one system.

    Attributes:
        maker: what translates.
        precision: what it computes in.
        trials: of the batchings, of which the best counts.
        together: what it did with all sentences, round by round.
        alone: what it did with one sentence at a time, round by round, by the number of its threads.
        differences: where it translated otherwise than CTranslate2, by search; None if that was not compared.
    """

    maker: str
    precision: Precision
    trials: Trials
    together: list[Round]
    alone: dict[int, list[Round]]
    differences: dict[str, list[Difference]] | None

    def best_threads(self, search: str) -> int:
        """Returns the number of threads with which one sentence at a time takes the least time."""
        return min(
            self.alone, key=lambda threads: statistics.median(each.seconds[search] for each in self.alone[threads])
        )

    def alone_seconds(self, search: str) -> list[float]:
        """Returns how long one sentence after the other took with the best number of threads, round by round."""
        return [each.seconds[search] for each in self.alone[self.best_threads(search)]]


@dataclass(frozen=True, slots=True)
class OfflineModelResult:
    """What was measured of all systems of one model.

    Attributes:
        name: of the model.
        description: its shape.
        sentences: how many were translated.
        alone: how many of them one at a time.
        systems: the results.
    """

    name: str
    description: str
    sentences: int
    alone: int
    systems: list[OfflineResult]


def best(tried: dict[str, list[float]]) -> str:
    """Returns the batching that gave the most tokens per second in any pass: what else a machine does only slows."""
    return max(tried, key=lambda batching: max(tried[batching]))
