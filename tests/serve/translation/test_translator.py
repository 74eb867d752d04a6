"""The translator between event loop and engines: results, cancellation, failures, limits and the result cache."""

import asyncio
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.serve import errors
from dragoman.serve.scheduler.sequence import DecodingSequence
from dragoman.serve.search.options import SearchOptions
from dragoman.serve.translation.fields import SearchFields
from tests.support.fakes import ENDLESS_ID, EOS_ID, POISON_ID, translate
from tests.support.translators import LONG, LONG_IDS, MAX_TARGET_TOKENS, NumberTokenizer, TranslatorBench, expected_text

pytestmark = pytest.mark.anyio
POISON = f"{POISON_ID} {ENDLESS_ID}"


@pytest.mark.parametrize("source_prefix", [(), (7,)])
async def test_every_text_is_translated_in_order_after_the_prefix_of_the_direction(
    bench: TranslatorBench, source_prefix: tuple[int, ...]
) -> None:
    sources = [(3, 4), (5,), (6, 7, 8)]
    response = await bench.translate(*[NumberTokenizer().decode(ids) for ids in sources], source_prefix=source_prefix)
    for translation, ids in zip(response.translations, sources, strict=True):
        source_ids = (*source_prefix, *ids, EOS_ID)
        target_ids, score, reason = translate(source_ids, MAX_TARGET_TOKENS)
        assert (translation.text, translation.finish_reason) == (NumberTokenizer().decode(target_ids), reason)
        assert (translation.source_tokens, translation.target_tokens) == (len(source_ids), len(target_ids))
        assert translation.score == pytest.approx(score)
        assert translation.cached is None


async def test_more_texts_than_slots_are_translated_in_turns() -> None:
    with TranslatorBench(slots=2, queue_limit=6) as bench:
        response = await bench.translate(*(str(number) for number in range(3, 11)))
        texts = [translation.text for translation in response.translations]
        assert texts == [expected_text(number) for number in range(3, 11)]
        assert max(bench.model.steps) == 2


async def test_the_timings_are_parts_of_the_total(bench: TranslatorBench) -> None:
    timings = (await bench.translate("3 4", "5 6")).timings
    parts = (timings.tokenize_seconds, timings.queue_seconds, timings.inference_seconds)
    assert 0 < min(parts) <= max(parts) < timings.total_seconds


async def test_the_longest_source_is_translated_and_one_token_more_is_refused(bench: TranslatorBench) -> None:
    """The limit includes the end token."""
    await bench.translate("3 4 5 6 7")
    with pytest.raises(errors.InvalidRequestError) as refused:
        await bench.translate("3", "3 4 5 6 7 8")
    assert refused.value.field == "text[1]"
    assert bench.scheduler.idle


async def test_when_one_text_fails_the_others_are_cancelled() -> None:
    with TranslatorBench(slots=1) as bench:
        finish = bench.scheduler.finish

        def finish_and_wait(sequence: DecodingSequence, error: errors.ServiceError | None = None) -> None:
            if isinstance(error, errors.InternalError):
                bench.model.gate.clear()
            finish(sequence, error)

        bench.scheduler.finish = finish_and_wait  # type: ignore[method-assign]
        with pytest.raises(errors.InternalError):
            await bench.translate(POISON, LONG, LONG)
        bench.model.gate.set()
        await bench.idle()
        assert (bench.finished("internal"), bench.finished("cancelled")) == (1, 2)


async def test_a_full_queue_refuses_all_texts_of_a_request() -> None:
    with TranslatorBench(slots=1, queue_limit=1) as bench:
        bench.model.gate.clear()
        first = bench.translate(LONG)
        await bench.stepping()
        with pytest.raises(errors.QueueFullError):
            await bench.translate("3", "4")
        assert bench.scheduler.waiting == 0
        second = bench.translate("3")
        bench.model.gate.set()
        await asyncio.gather(first, second)


async def test_a_model_that_is_not_verified_admits_no_request_not_even_a_cached_one(caching: TranslatorBench) -> None:
    await caching.translate("3")
    caching.readiness.verified = False
    with pytest.raises(errors.NotReadyError):
        await caching.translate("3")
    with pytest.raises(errors.NotReadyError):
        await anext(caching.stream("3"))


async def test_an_engine_that_stops_ends_every_translation() -> None:
    with TranslatorBench(slots=1) as bench:
        bench.model.gate.clear()
        drain = bench.scheduler.drain

        def drain_and_open() -> None:
            drain()
            bench.model.gate.set()

        bench.scheduler.drain = drain_and_open  # type: ignore[method-assign]
        tasks = [bench.translate(LONG), bench.translate(LONG)]
        await bench.stepping()
        await asyncio.to_thread(bench.engine.stop)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [errors.DrainingError, errors.DrainingError]


async def test_only_the_texts_that_are_not_cached_are_computed(caching: TranslatorBench) -> None:
    (first,) = (await caching.translate("5")).translations
    translations = (await caching.translate("7 8", "5", LONG)).translations
    assert [translation.cached for translation in (first, *translations)] == [False, False, True, False]
    assert replace(translations[1], cached=False) == first
    texts = [translation.text for translation in translations]
    assert texts == [expected_text(*ids) for ids in ((7, 8), (5,), LONG_IDS)]
    steps = len(caching.model.steps)
    assert all(translation.cached for translation in (await caching.translate(LONG, "7 8")).translations)
    assert len(caching.model.steps) == steps
    assert caching.lookups == (3, 3)


@pytest.mark.parametrize(("seed", "hits"), [(5, 1), (None, 0)])
async def test_a_translation_sampled_with_a_seed_of_the_server_is_neither_stored_nor_looked_up(
    caching: TranslatorBench, seed: int | None, hits: int
) -> None:
    options = SearchOptions(max_target_tokens=MAX_TARGET_TOKENS, temperature=1.0, seed=5)
    for _ in range(2):
        await caching.translate("3", options=options, fields=SearchFields(temperature=1.0, seed=seed))
    assert caching.lookups == (hits, hits)


async def test_a_failed_request_stores_nothing(caching: TranslatorBench) -> None:
    for _ in range(2):
        with pytest.raises(errors.InternalError):
            await caching.translate("3", POISON)
    with pytest.raises(errors.DeadlineExceededError):
        await caching.translate("3", deadline_seconds=time.monotonic() - 1)
    assert caching.lookups[0] == 0


searches = st.sampled_from(
    [
        SearchOptions(max_target_tokens=MAX_TARGET_TOKENS),
        SearchOptions(max_target_tokens=3),
        SearchOptions(max_target_tokens=MAX_TARGET_TOKENS, beam_size=3, hypotheses=2),
        SearchOptions(max_target_tokens=MAX_TARGET_TOKENS, temperature=1.0, seed=1),
        SearchOptions(max_target_tokens=MAX_TARGET_TOKENS, temperature=1.0, seed=2, hypotheses=2),
    ]
)
any_fields = st.builds(SearchFields, token_scores=st.booleans())
texts_of_a_request = st.lists(st.sampled_from(["3", "4 5", LONG, "6 7 8"]), min_size=1, max_size=4)


@given(st.lists(st.tuples(texts_of_a_request, searches, any_fields), max_size=6), st.sampled_from([1, 5000, 1 << 20]))
@settings(max_examples=20)
def test_answers_are_the_same_with_and_without_a_cache(
    requests: list[tuple[list[str], SearchOptions, SearchFields]], cache_bytes: int
) -> None:
    """Bit for bit, for any earlier requests, also the same ones, and any cache size."""

    async def answers(bench: TranslatorBench) -> list[object]:
        responses = [
            await bench.translate(*texts, options=options, fields=fields) for texts, options, fields in 2 * requests
        ]
        return [replace(translation, cached=None) for response in responses for translation in response.translations]

    with TranslatorBench(queue_limit=100) as plain, TranslatorBench(queue_limit=100, cache_bytes=cache_bytes) as cached:
        assert asyncio.run(answers(plain)) == asyncio.run(answers(cached))
