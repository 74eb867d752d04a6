"""Streams of the translator: the deltas make up the response, and failures end the stream."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import TypeGuard

import pytest

from dragoman.serve.errors import InternalError
from dragoman.serve.search.options import SearchOptions
from dragoman.serve.translation.response import TranslationDelta, TranslationResponse
from tests.support.fakes import ENDLESS_ID, POISON_ID
from tests.support.translators import GREEDY, LONG, MAX_TARGET_TOKENS, Event, TranslatorBench, expected_text

pytestmark = pytest.mark.anyio
POISON = f"{POISON_ID} {ENDLESS_ID}"


def is_delta(event: Event) -> TypeGuard[TranslationDelta]:
    return isinstance(event, TranslationDelta)


def text_of(events: Iterable[Event]) -> str:
    return "".join(event.text for event in events if is_delta(event))


async def collect(events: AsyncGenerator[Event]) -> tuple[list[TranslationDelta], TranslationResponse]:
    *deltas, response = [event async for event in events]
    assert isinstance(response, TranslationResponse)
    return list(filter(is_delta, deltas)), response


@pytest.mark.parametrize(
    "options", [GREEDY, SearchOptions(max_target_tokens=MAX_TARGET_TOKENS, temperature=1.0, seed=5)]
)
async def test_the_deltas_of_each_text_make_up_the_response_of_a_single_call(
    bench: TranslatorBench, options: SearchOptions
) -> None:
    texts = "3 4", LONG, "6 7 8"
    deltas, response = await collect(bench.stream(*texts, options=options))
    assert response.translations == (await bench.translate(*texts, options=options)).translations
    for index, translation in enumerate(response.translations):
        own = [delta for delta in deltas if delta.text_index == index]
        assert text_of(own) == translation.text
        assert [delta.finish_reason for delta in own] == [None] * (len(own) - 1) + [translation.finish_reason]
        assert own[-1].target_tokens == translation.target_tokens
        assert [delta.target_tokens for delta in own] == sorted(delta.target_tokens for delta in own)
    await bench.idle()
    assert bench.sample("request_texts_count") == 2


async def test_a_token_is_sent_before_the_next_one_is_computed(bench: TranslatorBench) -> None:
    steps: list[int] = []
    bench.model.gate.clear()
    bench.model.on_step = bench.model.gate.clear
    async with aclosing(bench.stream(LONG)) as events:
        bench.model.gate.set()
        async for event in events:
            if is_delta(event) and event.finish_reason is None:
                steps.append(len(bench.model.steps))
                assert event.target_tokens == len(steps)
            bench.model.gate.set()
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) > 5


async def test_deltas_that_are_not_consumed_in_time_are_merged(bench: TranslatorBench) -> None:
    async with aclosing(bench.stream(LONG)) as events:
        first = await bench.first_delta(events)
        await bench.idle()
        further, response = await collect(events)
    assert text_of([first, *further]) == response.translations[0].text
    assert len(further) <= 2


@pytest.mark.parametrize("kind", [{"beam_size": 3}, {"temperature": 1.0}], ids=str)
async def test_the_best_of_several_hypotheses_comes_in_one_delta(
    bench: TranslatorBench, kind: dict[str, float]
) -> None:
    options = SearchOptions(max_target_tokens=MAX_TARGET_TOKENS, hypotheses=2, **kind)  # type: ignore[arg-type]
    (delta,), response = await collect(bench.stream(LONG, options=options))
    (translation,) = response.translations
    assert (delta.text_index, delta.text) == (0, translation.text)
    assert (delta.target_tokens, delta.finish_reason) == (translation.target_tokens, translation.finish_reason)
    assert len(translation.alternatives) == 1


async def test_a_closed_stream_gives_back_its_slots_within_one_step(bench: TranslatorBench) -> None:
    bench.model.on_step = bench.model.gate.clear
    async with aclosing(bench.stream(LONG, LONG)) as events:
        await anext(events)
    bench.model.gate.set()
    await bench.idle()
    assert len(bench.model.steps) <= 2
    assert bench.finished("cancelled") == 2


@pytest.mark.parametrize("texts", [(POISON,), (LONG, POISON)])
@pytest.mark.parametrize("slow", [False, True])
async def test_a_failure_ends_the_stream_after_the_deltas_before_it(
    bench: TranslatorBench, texts: tuple[str, ...], *, slow: bool
) -> None:
    """A slow client still sends the first delta while the failed text has no translation to report."""
    events = bench.stream(*texts)
    assert (await bench.first_delta(events)).text
    if slow:
        await bench.idle()
    with pytest.raises(InternalError):
        await collect(events)


async def test_a_stream_takes_from_the_cache_and_gives_to_it(caching: TranslatorBench) -> None:
    deltas, first = await collect(caching.stream(LONG))
    (delta,), second = await collect(caching.stream(LONG))
    assert second.translations == (replace(first.translations[0], cached=True),)
    assert (delta.text, delta.finish_reason) == (text_of(deltas), first.translations[0].finish_reason)
    _, third = await collect(caching.stream("7 8", LONG, "5"))
    assert [translation.cached for translation in third.translations] == [False, True, False]


async def test_sentences_that_end_while_a_cached_one_is_sent_are_sent_too(caching: TranslatorBench) -> None:
    """Their deltas were lost if all ended before the client took the delta of the cached one."""
    await collect(caching.stream(LONG))
    events = caching.stream(LONG, "7 8")
    taken = [await anext(events)]
    await caching.idle()
    await asyncio.sleep(0.01)  # the ends reach the event loop
    taken += [event async for event in events]
    texts = [event.text for event in taken if isinstance(event, TranslationDelta) and event.text_index == 1]
    assert "".join(texts) == expected_text(7, 8)
