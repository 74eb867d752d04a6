"""The result cache: returns stored hypotheses instead of computing the same sequence again.

Hypotheses depend only on source tokens and options: a cached result is bit-identical to a computed one. Not
thread-safe: used in the event loop's thread.
"""

from collections import OrderedDict
from typing import NamedTuple

from serve.observability.metrics import Metrics
from serve.scheduler.sequence import SequenceSpec
from serve.search.hypothesis import Hypothesis

# Sizes in 64-bit CPython, rounded up: a number in a tuple, an array, a hypothesis, and an entry with its options, key
# and table slots.
NUMBER_BYTES = 40
ARRAY_BYTES = 160
HYPOTHESIS_BYTES = 320
ENTRY_BYTES = 1024

Hypotheses = tuple[Hypothesis, ...]


class _Entry(NamedTuple):
    hypotheses: Hypotheses
    size_bytes: int


class ResultCache:
    """The hypotheses of finished sequences; evicts the least recently used.

    Sizes are estimates of `entry_bytes`; `max_bytes` bounds their sum.
    """

    def __init__(self, max_bytes: int, metrics: Metrics) -> None:
        self._entries = OrderedDict[SequenceSpec, _Entry]()  # the least recently used first
        self._max_bytes = max_bytes
        self._used_bytes = 0
        self._metrics = metrics

    def get(self, spec: SequenceSpec) -> Hypotheses | None:
        """Returns the hypotheses of a sequence, best first; None: not stored."""
        entry = self._entries.get(spec)
        self._metrics.observe_cache(hit=entry is not None)
        if entry is None:
            return None
        self._entries.move_to_end(spec)
        return entry.hypotheses

    def put(self, spec: SequenceSpec, hypotheses: Hypotheses) -> None:
        """Stores the hypotheses of a sequence, unless they exceed the capacity."""
        entry = _Entry(hypotheses, entry_bytes(spec, hypotheses))
        if spec in self._entries or entry.size_bytes > self._max_bytes:
            return
        self._used_bytes += entry.size_bytes
        evicted = 0
        while self._used_bytes > self._max_bytes:
            _, oldest = self._entries.popitem(last=False)
            self._used_bytes -= oldest.size_bytes
            evicted += 1
        self._entries[spec] = entry
        self._metrics.set_cache(bytes_used=self._used_bytes, evicted=evicted)


def entry_bytes(spec: SequenceSpec, hypotheses: Hypotheses) -> int:
    """Estimates an upper bound of the memory of an entry.

    The sum of ENTRY_BYTES, NUMBER_BYTES per token of source, prefix and suppressed tokens, and per hypothesis
    HYPOTHESIS_BYTES, NUMBER_BYTES per token and score, and the bytes of its alignments.
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
