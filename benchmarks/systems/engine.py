"""What all engines translate: sentences with their search options."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache

from benchmarks.harness.errors import BenchmarkError
from benchmarks.systems.translating import LENGTH_PENALTY, SourceSentence
from dragoman.serve.scheduler.sequence import DecodingSequence, SequenceSpec
from dragoman.serve.search.options import SearchOptions

# No benchmark queues more rows.
MAX_WAITING_ROWS = 1 << 24
Order = Callable[[Iterable[DecodingSequence]], list[DecodingSequence]]


@cache
def search_options(shortest: int, longest: int, beam_size: int = 1, *, shortlist: bool = False) -> SearchOptions:
    """Returns options for a translation of `shortest` to `longest` tokens."""
    return SearchOptions(
        min_target_tokens=shortest,
        max_target_tokens=longest,
        beam_size=beam_size,
        length_penalty=LENGTH_PENALTY,
        shortlist=shortlist,
    )


def specs_of(sentences: Sequence[SourceSentence], beam_size: int, *, shortlist: bool = False) -> list[SequenceSpec]:
    """Returns sentences with their search options; `shortlist`: chooses tokens of the bundle's shortlist."""
    return [
        SequenceSpec(sentence.source_ids, search_options(*sentence.limits, beam_size, shortlist=shortlist))
        for sentence in sentences
    ]


def raise_error(sequence: DecodingSequence) -> None:
    """Raises the error of a sequence that has no translation."""
    if sequence.error is not None:
        raise BenchmarkError(str(sequence.error)) from sequence.error
