"""The result cache: its bound in bytes, eviction of the least recently used, and its metrics."""

import gc
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.scheduler.sequence import SequenceSpec
from dragoman.serve.search.hypothesis import FinishReason, Hypothesis
from dragoman.serve.search.options import SearchOptions
from dragoman.serve.translation.cache import Hypotheses, ResultCache, Translations, entry_bytes, translations_bytes
from dragoman.serve.translation.fields import SearchFields
from dragoman.serve.translation.job import Job
from tests.support.fake_bundles import LONG_TEXT
from tests.support.fakes import FakeModel
from tests.support.live import run_service
from tests.support.translators import made_job, made_translation
from tests.support.wire import score_over_both, translate_over_both

PLENTY = 1 << 30


class Bench:
    """A cache and its metrics."""

    def __init__(self, max_bytes: int = PLENTY) -> None:
        self.registry = CollectorRegistry()
        self.cache = ResultCache(max_bytes, Metrics(self.registry, "tiny"))

    def sample(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"dragoman_result_cache_{name}", {"model": "tiny", **labels})


def spec(number: int, source_tokens: int = 3) -> SequenceSpec:
    # Integers that CPython does not share.
    source_ids = tuple(range(1000 + number, 1000 + number + source_tokens))
    return SequenceSpec(source_ids, SearchOptions(max_target_tokens=300 + number, length_penalty=number / 7))


def found(number: int, target_tokens: int = 3, *, aligned: bool = False) -> Hypotheses:
    scores = [-(number + position) / 7 for position in range(target_tokens + 1)]
    hypothesis = Hypothesis(
        target_ids=tuple(range(2000 + number, 2000 + number + target_tokens)),
        score=sum(scores),
        normalized_score=sum(scores) / len(scores),
        finish_reason=FinishReason.EOS,
        token_scores=tuple(scores),
        alignments=np.zeros((target_tokens, 5), np.float32) if aligned else None,
    )
    return (hypothesis,)


def test_a_result_is_found_by_the_same_source_and_options_only() -> None:
    bench = Bench()
    bench.cache.put(spec(1), found(1))
    other = SequenceSpec(spec(1).source_ids, spec(2).options)
    stored, *missing = bench.cache.find([SequenceSpec(*spec(1)), spec(2), other])
    assert stored is not None
    assert missing == [None, None]
    assert stored[0].target_ids == found(1)[0].target_ids
    assert (bench.sample("lookups_total", result="hit"), bench.sample("lookups_total", result="miss")) == (1, 2)


@settings(max_examples=50)
@given(
    max_bytes=st.integers(1, 12_000),
    calls=st.lists(st.tuples(st.booleans(), st.integers(0, 7), st.integers(0, 300)), max_size=60),
)
def test_the_least_recently_used_result_makes_room_and_one_larger_than_the_cache_is_not_stored(
    max_bytes: int, calls: list[tuple[bool, int, int]]
) -> None:
    """The reference is a plain list of sizes in the order of use."""
    bench, sizes, evicted = Bench(max_bytes), OrderedDict[int, int](), 0
    for put, number, target_tokens in calls:
        if put:
            answer = found(number, target_tokens)
            bench.cache.put(spec(number), answer)
            size = entry_bytes(spec(number), answer)
            if number not in sizes and size <= max_bytes:
                while sum(sizes.values()) + size > max_bytes:
                    sizes.popitem(last=False)
                    evicted += 1
                sizes[number] = size
        else:
            assert (bench.cache.find([spec(number)]) != [None]) == (number in sizes)
            if number in sizes:
                sizes.move_to_end(number)
        assert bench.cache._used_bytes == sum(sizes.values()) <= max_bytes
    assert (bench.sample("bytes"), bench.sample("evictions_total")) == (sum(sizes.values()), evicted)


def memory_of(store: Callable[[int], int], entries: int) -> tuple[int, int]:
    """Returns the bytes that stored entries take after a first one, and the sum of what their stores return."""
    store(entries)
    gc.collect()
    tracemalloc.start()
    try:
        before_bytes, _ = tracemalloc.get_traced_memory()
        estimated_bytes = sum(map(store, range(entries)))
        after_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after_bytes - before_bytes, estimated_bytes


@pytest.mark.parametrize(
    ("source_tokens", "target_tokens", "aligned"), [(1, 0, False), (3, 3, True), (30, 30, False), (100, 300, True)]
)
def test_entries_take_no_more_memory_than_estimated_and_not_much_less(
    source_tokens: int, target_tokens: int, *, aligned: bool
) -> None:
    bench = Bench()

    def store(number: int) -> int:
        made, answer = spec(number, source_tokens), found(number, target_tokens, aligned=aligned)
        bench.cache.put(made, answer)
        return entry_bytes(made, answer)

    taken_bytes, estimated_bytes = memory_of(store, entries=500)
    assert 0.5 * estimated_bytes < taken_bytes <= estimated_bytes


def repeated(number: int, characters: int = 30, texts: int = 1) -> tuple[Job, Translations]:
    letters = [chr(1000 + number + index) for index in range(texts)]  # CPython keeps no string of them
    job = made_job(tuple(characters * letter for letter in letters))
    return job, tuple(
        made_translation(
            characters * letter, 1000 + number, score=-number / 7, normalized_score=-number / 9, cached=True
        )
        for letter in letters
    )


@pytest.mark.parametrize(("characters", "texts"), [(1, 1), (30, 1), (30, 20), (2000, 3)])
def test_translations_take_no_more_memory_than_estimated(characters: int, texts: int) -> None:
    bench = Bench()

    def store(number: int) -> int:
        job, translations = repeated(number, characters, texts)
        bench.cache.put_translations(job, translations)
        return translations_bytes(job, translations)

    taken_bytes, estimated_bytes = memory_of(store, entries=200)
    assert taken_bytes <= estimated_bytes


def test_each_sentence_of_found_translations_counts() -> None:
    bench = Bench()
    job, (translation,) = repeated(1)
    assert bench.cache.get_translations(job) is None
    bench.cache.put_translations(job, (replace(translation, sentences=3),))
    assert bench.cache.get_translations(job) is not None
    assert (bench.sample("lookups_total", result="hit"), bench.sample("lookups_total", result="miss")) == (3, 0)


@pytest.mark.parametrize("fields", [SearchFields(token_scores=True), SearchFields(temperature=1.0)])
def test_translations_with_scores_of_tokens_or_random_ones_are_not_stored_as_a_whole(fields: SearchFields) -> None:
    bench = Bench()
    job, translations = repeated(1)
    job.fields = fields
    bench.cache.put_translations(job, translations)
    assert bench.cache.get_translations(job) is None


def test_a_cached_result_has_its_alignments_in_words_and_in_tokens(letters_bundle: Path) -> None:
    with run_service(letters_bundle, [FakeModel(8)], alignments=True, result_cache_bytes=PLENTY) as live:
        first, second, third = (
            live.post({"text": "ab ba", "options": {"alignments": unit}}).json()["translations"][0]
            for unit in ("tokens", "words", "tokens")
        )
    assert [item["cached"] for item in (first, second, third)] == [False, True, True]
    assert first["alignments"] == third["alignments"] != second["alignments"]
    assert len(second["alignments"][0]["source"]) == 2


def test_both_interfaces_share_the_cache_and_report_cached_results(bundle_path: Path) -> None:
    """After a REST request, REST and gRPC get the cached answer."""
    options = {"beam_size": 2, "hypotheses": 2, "token_scores": True}
    with run_service(bundle_path, result_cache_bytes=PLENTY) as live:
        first = live.post({"text": LONG_TEXT, "options": options}).json()["translations"][0]
        (second,) = translate_over_both(live, {"text": [LONG_TEXT], "options": options})
        assert (first.pop("cached"), second.pop("cached")) == (False, True)
        assert first == second
        pair = {"pairs": [{"text": "alpha", "translation": "beta"}]}
        scored = live.post(pair, path="/v1/score").json()["scores"][0]
        (again,) = score_over_both(live, pair)
        assert (scored.pop("cached"), again.pop("cached")) == (False, True)
        assert scored == again
        assert live.metric("result_cache_lookups_total", result="hit") == 4
        assert live.metric("result_cache_bytes") > 0
