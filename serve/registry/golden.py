"""The warm-up: translates the bundle's golden sentences and compares every token with what the trained model gave.

A corrupt, wrongly exported or wrongly read model gives other tokens and never serves. The sentences take the way of
real requests through tokenizer, scheduler and engine, and run together, so that batching is tried too. Called by
`serve.registry.pipeline`.
"""

from collections.abc import Sequence as Sequences

from model.tokenizer.text_tokenizer import TextTokenizer
from serve.bundle.manifest import BundleDirection, GoldenSentence
from serve.scheduler.scheduler import Scheduler
from serve.scheduler.sequence import Wish
from serve.search.options import SearchOptions
from serve.translation.submission import run_sequences


class GoldenMismatchError(Exception):
    """The model is not the one that was exported; the message names the first sentence that differs."""


async def check_golden(
    golden: Sequences[GoldenSentence],
    directions: Sequences[BundleDirection],
    tokenizer: TextTokenizer,
    scheduler: Scheduler,
    *,
    source_suffix: tuple[int, ...],
    max_target_tokens: int,
    together: int,
) -> None:
    """Translates every golden sentence.

    Args:
        golden: sentences with the expected tokens, each of one of the directions; at least one.
        directions: what the model translates.
        tokenizer: the served model's.
        scheduler: takes the sentences.
        source_suffix: tokens after every source.
        max_target_tokens: the limit that the expected tokens were made with.
        together: how many sentences are submitted at once.

    Raises:
        GoldenMismatchError: if a source or target token differs, or nothing can be compared.
        ServiceError: if the engine fails.
    """
    if not golden:
        raise GoldenMismatchError("golden sentences: none, expected at least one")
    prefixes = {(direction.source, direction.target): direction.source_prefix for direction in directions}
    for number, sentence in enumerate(golden):
        prefix = prefixes[sentence.source_language, sentence.target_language]
        source_ids = (*prefix, *tokenizer.encode(sentence.source), *source_suffix)
        _compare(number, "source", sentence.source_ids, source_ids)
    options = SearchOptions(max_target_tokens=max_target_tokens)
    for start in range(0, len(golden), together):
        group = golden[start : start + together]
        wishes = [Wish(sentence.source_ids, options) for sentence in group]
        sequences = await run_sequences(scheduler, wishes, deadline_seconds=None)
        for number, (sentence, sequence) in enumerate(zip(group, sequences, strict=True), start):
            _compare(number, "target", sentence.target_ids, sequence.best.target_ids)


def _compare(number: int, side: str, expected: tuple[int, ...], actual: tuple[int, ...]) -> None:
    if actual != expected:
        raise GoldenMismatchError(f"golden sentence {number}: {side} tokens are {actual}, expected {expected}")
