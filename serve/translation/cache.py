"""Answers that were given before, so that the same wish is not computed again.

An answer depends on nothing but the source tokens and the options, whoever else is running: what is kept is bit for bit
what would be computed. Belongs to the event loop's thread; called by `serve.translation.translator`. Knows no texts.
"""

from typing import NamedTuple

from cachetools import LRUCache

from serve.observability.metrics import Metrics
from serve.scheduler.sequence import SequenceSpec
from serve.search.hypothesis import Hypothesis

# What a 64-bit CPython takes, rounded up: a number in a tuple, an array, a hypothesis, and an entry with its options,
# its key and its places in the tables.
NUMBER_BYTES = 40
ARRAY_BYTES = 160
HYPOTHESIS_BYTES = 320
ENTRY_BYTES = 1024

Hypotheses = tuple[Hypothesis, ...]


class _Entry(NamedTuple):
    hypotheses: Hypotheses
    size_bytes: int


class ResultCache:
    """The hypotheses of finished sequences, those that were asked for least recently going first."""

    def __init__(self, max_bytes: int, metrics: Metrics) -> None:
        """Starts empty.

        Args:
            max_bytes: the most memory that all entries take together, as `entry_bytes` estimates it.
            metrics: where hits, misses, evictions and bytes are counted.
        """
        self._entries: LRUCache[SequenceSpec, _Entry] = LRUCache(max_bytes, lambda entry: entry.size_bytes)
        self._metrics = metrics

    def get(self, spec: SequenceSpec) -> Hypotheses | None:
        """Returns what was found for a wish, best first; None if it is not there."""
        entry = self._entries.get(spec)
        self._metrics.observe_cache(hit=entry is not None)
        return None if entry is None else entry.hypotheses

    def put(self, spec: SequenceSpec, hypotheses: Hypotheses) -> None:
        """Keeps what was found for a wish, unless it is larger than the whole cache."""
        entry = _Entry(hypotheses, entry_bytes(spec, hypotheses))
        if spec in self._entries or entry.size_bytes > self._entries.maxsize:
            return
        count = len(self._entries) + 1
        self._entries[spec] = entry
        self._metrics.set_cache(bytes_used=int(self._entries.currsize), evicted=count - len(self._entries))


def entry_bytes(spec: SequenceSpec, hypotheses: Hypotheses) -> int:
    """Returns an upper estimate of the memory that an entry takes.

    The sum of ENTRY_BYTES, NUMBER_BYTES for each token of the source, the prefix and the suppressed ones, and for each
    hypothesis HYPOTHESIS_BYTES, NUMBER_BYTES for each of its tokens and scores, and the bytes of its alignments.
    """
    source_ids, options = spec
    numbers = len(source_ids) + len(options.target_prefix) + len(options.suppressed_ids)
    numbers += sum(len(each.target_ids) + len(each.token_scores) for each in hypotheses)
    arrays = [each.alignments for each in hypotheses if each.alignments is not None]
    return (
        ENTRY_BYTES
        + NUMBER_BYTES * numbers
        + HYPOTHESIS_BYTES * len(hypotheses)
        + sum(ARRAY_BYTES + array.nbytes for array in arrays)
    )
