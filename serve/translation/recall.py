"""The stage of memories: texts and sentences that people have translated take their translations.

Such a sentence is no sentence of the job any more: its translation stands between the others, as white space does.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING

from dragoman.serve.errors import InvalidRequestError, MemoryNotFoundError
from dragoman.serve.host.threads import RECALLS, SUGGESTIONS
from dragoman.serve.memory.entry import Client, Entry, Pair
from dragoman.serve.memory.pattern import Pattern, fill, read_pattern
from dragoman.serve.translation.job import Job, Known, SegmentedText
from dragoman.serve.translation.markup import PLAIN
from dragoman.serve.translation.request import TranslateRequest
from dragoman.serve.translation.response import Translation

if TYPE_CHECKING:
    from dragoman.serve.memory.store import MemoryStore, Recall  # SQLAlchemy is slow

MAX_MEMORIES = 5
# Texts of a request, the first ones, that are compared with those of memories; the largest cost tens of milliseconds.
MAX_SUGGESTED_TEXTS = 10
# A request waits no longer for suggestions, which other requests may delay.
SUGGESTION_SECONDS = 3
MEMORY, MIXED = "memory", "mixed"


async def find_recall(
    request: TranslateRequest, store: "MemoryStore | None", client: Client, default: str | None, pair: Pair
) -> "Recall | None":
    """Returns what finds the translations of a request; None: it names no memory, and that of the server has none.

    Raises InvalidRequestError if no memory can answer the request, or MemoryNotFoundError.
    """
    names, options = list(request.memory), request.options
    checks = {"target_prefix": any(request.target_prefix), "options.hypotheses": options.hypotheses > 1}
    excluded = [field for field, is_set in checks.items() if is_set]
    if not names:
        with suppress(MemoryNotFoundError):
            if store is not None and default is not None and not excluded:
                return await RECALLS.run(store.recall, client, [default], pair)
        return None
    if excluded:
        raise InvalidRequestError(excluded[0], "expected none with memory")
    if store is None:
        raise InvalidRequestError("memory", "expected none: the server has no --state-dir")
    if len(names) > MAX_MEMORIES:
        raise InvalidRequestError("memory", f"{len(names)} memories, expected at most {MAX_MEMORIES}")
    return await RECALLS.run(store.recall, client, names, pair)


def find_known(translations: Sequence[Translation]) -> Known | None:
    """Returns the numbers of the translations that come from a memory as a whole; None: none do."""
    return Known(number for number, item in enumerate(translations) if item.origin == MEMORY) or None


async def answer(recall: "Recall | Known", job: Job, cuts: Sequence[SegmentedText]) -> list[SegmentedText]:
    """Returns the texts of a job in the sentences that are left to translate, with the others translated."""
    if isinstance(recall, frozenset):
        return [
            _whole(cut, text) if number in recall else cut
            for number, (cut, text) in enumerate(zip(cuts, job.texts, strict=True))
        ]
    answered = await RECALLS.run(_answer, recall, job, cuts)
    with suppress(TimeoutError):
        async with asyncio.timeout(SUGGESTION_SECONDS):
            for number, cut in islice(enumerate(answered), MAX_SUGGESTED_TEXTS):
                if cut.sentences and not cut.recalled:
                    similar = await SUGGESTIONS.run(recall.find_similar, job.texts[number], markup=_has_tags(job))
                    answered[number] = cut._replace(suggestions=tuple(similar))
    return answered


def explain(job: Job, translations: Sequence[Translation]) -> None:
    """Adds to each translation whether it comes from a memory, and what is similar there."""
    for translation, cut in zip(translations, job.cuts, strict=True):
        if cut.recalled:
            translation.origin = MIXED if cut.sentences else MEMORY
        translation.suggestions = cut.suggestions or None


def _answer(recall: "Recall", job: Job, cuts: Sequence[SegmentedText]) -> list[SegmentedText]:
    sources = chain(job.texts, *([] if recall.whole_texts else map(_sources, cuts)))
    patterns = {text: read_pattern(text, markup=_has_tags(job)) for text in sources}
    found = recall.find(patterns)
    if not found:
        return list(cuts)
    answered = list[SegmentedText]()
    for cut, text in zip(cuts, job.texts, strict=True):
        escape = cut.markup[0].escaper.escape if cut.markup and _has_tags(job) else str
        whole = _translation(patterns[text], found, escape) if cut.sentences else None
        # A pattern has no line ends: those of the text must not be lost.
        if whole is not None and text.strip().count("\n") in (0, whole.count("\n")):
            before, _, after = text.partition(text.strip())
            answered.append(_whole(cut, before + whole + after))
        elif recall.whole_texts:
            answered.append(cut)
        else:
            parts = [_translation(patterns[part], found, escape) for part in _sources(cut)]
            answered.append(_answered(cut, parts))
    return answered


def _whole(cut: SegmentedText, translation: str) -> SegmentedText:
    return cut._replace(sentences=(), gaps=(translation,), markup=(), recalled=1)


def _has_tags(job: Job) -> bool:
    return job.reading is not None and job.reading.markup.format != PLAIN


def _sources(cut: SegmentedText) -> Sequence[str]:
    """Returns the sentences of a text with their tags."""
    return [marked.sentence.source for marked in cut.markup] or cut.sentences


def _translation(text: Pattern, found: dict[str, list[Entry]], escape: Callable[[str], str]) -> str | None:
    """Returns the stripped translation of a text by an equal one, letter by letter if there is one, else the newest."""
    sources = [(read_pattern(match.source), match.target) for match in found.get(text.key, ())]
    for source, target in sorted(sources, key=lambda pair: pair[0] != text):
        if source.key == text.key and (filled := fill(source, target, text, escape)) is not None:
            return filled.strip()
    return None


def _answered(cut: SegmentedText, translations: Sequence[str | None]) -> SegmentedText:
    gaps, left = [cut.gaps[0]], list[int]()
    for index, (translation, gap) in enumerate(zip(translations, cut.gaps[1:], strict=True)):
        if translation is None:
            left.append(index)
            gaps.append(gap)
        else:
            gaps[-1] += translation + gap
    return cut._replace(
        sentences=tuple(cut.sentences[index] for index in left),
        gaps=tuple(gaps),
        markup=tuple(cut.markup[index] for index in left) if cut.markup else (),
        recalled=len(translations) - len(left),
    )
