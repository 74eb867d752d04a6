"""The result cache: returns stored hypotheses instead of computing the same sequence again.

Hypotheses depend only on source tokens and options: a cached result is bit-identical to a computed one. A request that
comes again finds its whole translations, without a look at its sentences and tokens. Not thread-safe: used in the event
loop's thread.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.scheduler.sequence import SequenceSpec
from dragoman.serve.search.hypothesis import Hypothesis
from dragoman.serve.translation.job import Job
from dragoman.serve.translation.response import Translation

# Sizes in 64-bit CPython, rounded up: a number in a tuple, an array, a hypothesis, and an entry with its options, key
# and table slots.
NUMBER_BYTES = 40
ARRAY_BYTES = 160
HYPOTHESIS_BYTES = 320
ENTRY_BYTES = 1024
CHARACTER_BYTES = 4

Hypotheses = tuple[Hypothesis, ...]
Translations = tuple[Translation, ...]


class _Entry(NamedTuple):
    found: Any
    size_bytes: int


class ResultCache:
    """The hypotheses of finished sequences, and translations of whole requests; evicts the least recently used.

    Sizes are estimates of `entry_bytes` and `translations_bytes`; `max_bytes` bounds their sum.
    """

    def __init__(self, max_bytes: int, metrics: Metrics) -> None:
        self._entries = OrderedDict[Hashable, _Entry]()  # the least recently used first
        self._max_bytes = max_bytes
        self._used_bytes = 0
        self._metrics = metrics

    def find(self, specs: Sequence[SequenceSpec]) -> list[Hypotheses | None]:
        """Returns the hypotheses of each sequence, best first; None: not stored."""
        found: list[Hypotheses | None] = [self._find(spec) for spec in specs]
        hits = len(found) - found.count(None)
        for hit, lookups in ((True, hits), (False, len(found) - hits)):
            if lookups:
                self._metrics.observe_cache(hit=hit, lookups=lookups)
        return found

    def put(self, spec: SequenceSpec, hypotheses: Hypotheses) -> None:
        """Stores the hypotheses of a sequence, unless they exceed the capacity."""
        self._store(spec, _Entry(hypotheses, entry_bytes(spec, hypotheses)))

    def get_translations(self, job: Job) -> Translations | None:
        """Returns the translations of a whole request; None: not stored. Each sentence counts as found."""
        found: Translations | None = self._find(_key(job)) if _is_kept(job) else None
        if found is not None:
            self._metrics.observe_cache(hit=True, lookups=sum(result.sentences for result in found))
        return found

    def put_translations(self, job: Job, translations: Translations) -> None:
        """Stores the translations of a simple request, and nothing of another one."""
        if _is_kept(job):
            self._store(_key(job), _Entry(translations, translations_bytes(job, translations)))

    def _find(self, key: Hashable) -> Any:
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry.found

    def _store(self, key: Hashable, entry: _Entry) -> None:
        if key in self._entries or entry.size_bytes > self._max_bytes:
            return
        self._used_bytes += entry.size_bytes
        evicted = 0
        while self._used_bytes > self._max_bytes:
            _, oldest = self._entries.popitem(last=False)
            self._used_bytes -= oldest.size_bytes
            evicted += 1
        self._entries[key] = entry
        self._metrics.set_cache(bytes_used=self._used_bytes, evicted=evicted)


def _is_kept(job: Job) -> bool:
    return job.simple and job.fields.repeatable


def _key(job: Job) -> Hashable:
    lengths = job.fields.max_target_ratio, job.fields.min_target_ratio
    return tuple(job.texts), tuple(job.target_prefixes), job.direction, job.options, lengths, job.split_sentences


def entry_bytes(spec: SequenceSpec, hypotheses: Hypotheses) -> int:
    """Estimates an upper bound of the memory of an entry.

    The sum of ENTRY_BYTES, NUMBER_BYTES per token of source, prefix, suppressed and required ones, and per hypothesis
    HYPOTHESIS_BYTES, NUMBER_BYTES per token and score, and the bytes of its alignments.
    """
    source_ids, options = spec
    numbers = len(source_ids) + len(options.target_prefix) + len(options.suppressed_ids) + len(options.candidate_ids)
    numbers += sum(len(hypothesis.target_ids) + len(hypothesis.token_scores) for hypothesis in hypotheses)
    arrays = [hypothesis.alignments for hypothesis in hypotheses if hypothesis.alignments is not None]
    return (
        ENTRY_BYTES
        + NUMBER_BYTES * numbers
        + HYPOTHESIS_BYTES * len(hypotheses)
        + sum(ARRAY_BYTES + array.nbytes for array in arrays)
    )


def translations_bytes(job: Job, translations: Translations) -> int:
    """Estimates an upper bound of the memory of the translations of a simple request.

    The sum of ENTRY_BYTES per request and per text, CHARACTER_BYTES per character of texts, prefixes and translations,
    and NUMBER_BYTES per suppressed token.
    """
    characters = sum(map(len, (*job.texts, *job.target_prefixes)))
    characters += sum(len(translation.text) for translation in translations)
    numbers = len(job.options.suppressed_ids)
    return ENTRY_BYTES * (1 + len(translations)) + CHARACTER_BYTES * characters + NUMBER_BYTES * numbers
