"""The translator between event loop and engines: times, cancellation, failures and limits of tokens."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from collections.abc import Sequence as Sequences
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeGuard

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from serve.bundle.manifest import BundleDirection
from serve.engine.engine import Engine
from serve.engine.readiness import Readiness
from serve.errors import (
    CancelledError,
    DeadlineExceededError,
    DrainingError,
    InternalError,
    InvalidRequestError,
    NotReadyError,
    QueueFullError,
    ServiceError,
)
from serve.observability.metrics import Metrics
from serve.scheduler.scheduler import Scheduler
from serve.scheduler.sequence import DecodingSequence
from serve.search.hypothesis import FinishReason
from serve.search.options import SearchOptions
from serve.translation.cache import ResultCache
from serve.translation.request import ModelRequest, SearchPlan, TargetVocabulary, TextRequest
from serve.translation.response import TranslationDelta, TranslationResponse
from serve.translation.translator import Translator
from tests.support.fakes import ENDLESS_ID, EOS_ID, POISON_ID, VOCABULARY, fake_manifest, translate
from tests.support.live import GatedModel, eventually

MAX_TARGET_TOKENS = 20
MAX_SOURCE_TOKENS = 6
Event = TranslationDelta | TranslationResponse
GREEDY = SearchPlan(SearchOptions(max_target_tokens=MAX_TARGET_TOKENS))


class NumberTokenizer:
    """A tokenizer whose texts are token ids."""

    def encode(self, text: str) -> list[int]:
        """Returns the ids of "5 6 7"."""
        return [int(part) for part in text.split()]

    @property
    def target_pieces(self) -> tuple[str, ...]:
        """The numbers themselves."""
        return tuple(map(str, range(VOCABULARY)))

    @property
    def target_unk_id(self) -> int:
        """Any number."""
        return 3

    def encode_target(self, text: str) -> list[int]:
        """Returns the ids of "5 6 7"."""
        return self.encode(text)

    def decode(self, ids: Sequences[int]) -> str:
        """Returns "5 6 7"."""
        return " ".join(map(str, ids))


def in_time() -> float:
    """Returns a deadline that is far enough away."""
    return time.monotonic() + 20


class Bench:
    """A translator in front of one engine with a gated model."""

    def __init__(self, slots: int = 4, queue_limit: int = 4, cache_bytes: int | None = None) -> None:
        self.registry = CollectorRegistry()
        metrics = Metrics(self.registry, "tiny")
        self.model = GatedModel(slots)
        self.scheduler = Scheduler(slots, queue_limit, 100, metrics)
        self.engine = Engine(self.model, self.scheduler, metrics, fake_manifest(MAX_TARGET_TOKENS))
        self.readiness = Readiness(metrics, [self.engine])
        self.readiness.verified = True
        self.translator = Translator(
            tokenizer=NumberTokenizer(),
            vocabulary=TargetVocabulary.of(NumberTokenizer().target_pieces, unk_id=3, eos_id=EOS_ID),
            scheduler=self.scheduler,
            readiness=self.readiness,
            metrics=metrics,
            source_suffix=(EOS_ID,),
            max_source_tokens=MAX_SOURCE_TOKENS,
            cache=None if cache_bytes is None else ResultCache(cache_bytes, metrics),
        )

    def run(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs a coroutine while the engine runs."""
        self.engine.start()
        try:
            asyncio.run(test())
        finally:
            self.model.gate.set()
            self.engine.stop()

    async def idle(self) -> None:
        """Returns when no sequence waits or runs."""
        await asyncio.to_thread(eventually, lambda: self.scheduler.idle)

    def translate(
        self,
        *texts: str,
        source_prefix: tuple[int, ...] = (),
        plan: SearchPlan = GREEDY,
        deadline_seconds: float | None = None,
    ) -> asyncio.Task[TranslationResponse]:
        """Starts a translation."""
        request = ModelRequest(text_requests(texts), direction(source_prefix), plan, deadline_seconds or in_time())
        return asyncio.create_task(self._translated(request))

    def stream(
        self, *texts: str, plan: SearchPlan = GREEDY, deadline_seconds: float | None = None
    ) -> AsyncGenerator[Event]:
        """Returns the stream of a translation, which starts with its first event."""
        return self._streamed(ModelRequest(text_requests(texts), direction(), plan, deadline_seconds or in_time()))

    async def _translated(self, request: ModelRequest) -> TranslationResponse:
        with await self.translator.reserve(request) as reservation:
            return await self.translator.translate(request, reservation)

    async def _streamed(self, request: ModelRequest) -> AsyncGenerator[Event]:
        with await self.translator.reserve(request) as reservation:
            async with aclosing(self.translator.stream(request, reservation)) as events:
                async for event in events:
                    yield event

    async def stepping(self) -> None:
        """Waits until the model blocks at its gate with the rows of a step."""
        assert await asyncio.to_thread(self.model.stepping.wait, 20)

    async def first_delta(self, events: AsyncGenerator[Event]) -> TranslationDelta:
        """Returns the delta of the first step, before the second step runs."""
        self.model.on_step = self.model.gate.clear
        event = await anext(events)
        assert isinstance(event, TranslationDelta)
        self.model.on_step = lambda: None
        self.model.gate.set()
        return event

    def cached(self, result: str) -> float | None:
        """Returns the number of cache lookups with this result: hit or miss."""
        labels = {"model": "tiny", "result": result}
        return self.registry.get_sample_value("dragoman_result_cache_lookups_total", labels)

    def finished(self, reason: str) -> float | None:
        """Returns the number of sequences with this finish reason."""
        labels = {"model": "tiny", "reason": reason}
        return self.registry.get_sample_value("dragoman_sequences_finished_total", labels)


def direction(source_prefix: tuple[int, ...] = ()) -> BundleDirection:
    return BundleDirection(source="en", target="de", source_prefix=source_prefix)


def text_requests(texts: Iterable[str]) -> tuple[TextRequest, ...]:
    return tuple(TextRequest(text, "", f"text[{index}]", "none") for index, text in enumerate(texts))


def long_source() -> tuple[int, ...]:
    """Returns a source whose translation takes many steps."""
    candidates = ((first, second) for first in range(3, 13) for second in range(3, 13))
    return next(ids for ids in candidates if len(translate((*ids, EOS_ID), MAX_TARGET_TOKENS)[0]) > 8)


LONG = " ".join(map(str, long_source()))


def test_every_text_is_translated_in_order() -> None:
    bench = Bench()

    async def test() -> None:
        response = await bench.translate("3 4", "5", "6 7 8")
        for translation, source_ids in zip(response.translations, [(3, 4), (5,), (6, 7, 8)], strict=True):
            target_ids, score, reason = translate((*source_ids, EOS_ID), MAX_TARGET_TOKENS)
            assert translation.text == " ".join(map(str, target_ids))
            assert translation.score == pytest.approx(score)
            assert translation.finish_reason is reason
            assert translation.source_tokens == len(source_ids) + 1
            assert translation.target_tokens == len(target_ids)

    bench.run(test)


def test_the_prefix_of_the_direction_comes_before_every_source() -> None:
    bench = Bench()

    async def test() -> None:
        response = await bench.translate("3 4", "5", source_prefix=(7,))
        for translation, source_ids in zip(response.translations, [(7, 3, 4, EOS_ID), (7, 5, EOS_ID)], strict=True):
            target_ids, _, _ = translate(source_ids, MAX_TARGET_TOKENS)
            assert translation.text == " ".join(map(str, target_ids))
            assert translation.source_tokens == len(source_ids)

    bench.run(test)


def test_more_texts_than_slots_are_translated_in_turns() -> None:
    bench = Bench(slots=2, queue_limit=6)

    async def test() -> None:
        response = await bench.translate(*(str(number) for number in range(3, 11)))
        assert len(response.translations) == 8

    bench.run(test)
    assert max(bench.model.steps) == 2


def test_a_limited_translation_says_so() -> None:
    bench = Bench()

    async def test() -> None:
        plan = SearchPlan(SearchOptions(max_target_tokens=3))
        (translation,) = (await bench.translate(LONG, plan=plan)).translations
        assert (translation.target_tokens, translation.finish_reason) == (3, FinishReason.LENGTH)

    bench.run(test)


def test_the_timings_are_parts_of_the_total() -> None:
    bench = Bench()

    async def test() -> None:
        timings = (await bench.translate("3 4", "5 6")).timings
        parts = (timings.tokenize_seconds, timings.queue_seconds, timings.inference_seconds)
        assert all(part > 0 for part in parts)
        assert max(parts) < timings.total_seconds

    bench.run(test)


def test_the_longest_source_is_translated_and_one_token_more_is_refused() -> None:
    """The limit includes the end token."""
    bench = Bench()

    async def test() -> None:
        await bench.translate("3 4 5 6 7")
        with pytest.raises(InvalidRequestError, match=r"^text\[1\]: 7 tokens, expected at most 6$"):
            await bench.translate("3", "3 4 5 6 7 8")
        assert bench.scheduler.idle

    bench.run(test)


@pytest.mark.promise("R17")
def test_a_cancelled_translation_gives_back_its_slots_within_one_step() -> None:
    bench = Bench()
    bench.model.gate.clear()

    async def test() -> None:
        task = bench.translate(LONG, LONG)
        await bench.stepping()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        bench.model.gate.set()
        await bench.idle()

    bench.run(test)
    assert len(bench.model.steps) == 1
    assert bench.finished("cancelled") == 2


def test_when_one_text_fails_the_others_are_cancelled() -> None:
    bench = Bench(slots=1)
    finish = bench.scheduler.finish

    def finish_and_wait(sequence: DecodingSequence, error: ServiceError | None = None) -> None:
        if isinstance(error, InternalError):
            bench.model.gate.clear()
        finish(sequence, error)

    bench.scheduler.finish = finish_and_wait  # type: ignore[method-assign]

    async def test() -> None:
        with pytest.raises(InternalError):
            await bench.translate(f"{POISON_ID} {ENDLESS_ID}", LONG, LONG)
        bench.model.gate.set()
        await bench.idle()

    bench.run(test)
    assert bench.finished("internal") == 1
    assert bench.finished("cancelled") == 2


@pytest.mark.promise("R16")
def test_the_deadline_is_kept_even_if_the_model_hangs() -> None:
    bench = Bench()
    bench.model.gate.clear()

    async def test() -> None:
        with pytest.raises(DeadlineExceededError):
            await bench.translate(LONG, deadline_seconds=time.monotonic() + 0.05)
        bench.model.gate.set()
        await bench.idle()

    bench.run(test)
    assert bench.finished("deadline_exceeded") == 1


def test_an_expired_deadline_is_refused_without_a_step() -> None:
    bench = Bench()

    async def test() -> None:
        with pytest.raises(DeadlineExceededError):
            await bench.translate(LONG, deadline_seconds=time.monotonic() - 1)
        await bench.idle()

    bench.run(test)
    assert bench.model.steps == []


def test_a_full_queue_refuses_all_texts_of_a_request() -> None:
    bench = Bench(slots=1, queue_limit=1)
    bench.model.gate.clear()

    async def test() -> None:
        first = bench.translate(LONG)
        await bench.stepping()
        with pytest.raises(QueueFullError):
            await bench.translate("3", "4")
        assert bench.scheduler.waiting == 0
        second = bench.translate("3")
        bench.model.gate.set()
        await asyncio.gather(first, second)

    bench.run(test)


def test_no_request_is_admitted_before_the_model_is_verified() -> None:
    bench = Bench()
    bench.readiness.verified = False

    async def test() -> None:
        with pytest.raises(NotReadyError, match=r"^warming up$"):
            await bench.translate("3")

    bench.run(test)


def test_a_failing_model_admits_no_request() -> None:
    bench = Bench()
    bench.model.decode_error = RuntimeError("broken")

    async def test() -> None:
        for _ in range(3):
            with pytest.raises(InternalError):
                await bench.translate("3")
        with pytest.raises(NotReadyError, match="the model failed"):
            await bench.translate("3")

    bench.run(test)


def test_a_long_request_does_not_hold_up_the_event_loop() -> None:
    """Other tasks run between texts."""
    bench = Bench(slots=64)
    turns: list[int] = []
    tokenized: list[str] = []
    encode = NumberTokenizer.encode

    class SlowTokenizer(NumberTokenizer):
        def encode(self, text: str) -> list[int]:
            tokenized.append(text)
            return encode(self, text)

    bench.translator._tokenizer = SlowTokenizer()

    async def other() -> None:
        while len(tokenized) < 5:
            turns.append(len(tokenized))
            await asyncio.sleep(0)

    async def test() -> None:
        task = bench.translate(*[" 3" * 4 + " " * 10_000] * 5)
        await other()
        await task

    bench.run(test)
    assert turns == [0, 1, 2, 3, 4]


def test_many_concurrent_cancellations_leave_nothing_behind() -> None:
    bench = Bench(slots=4, queue_limit=400)

    async def test() -> None:
        tasks = [bench.translate(LONG, "3 4") for _ in range(100)]
        cancelled = []
        for index, task in enumerate(tasks):
            await asyncio.sleep(0)
            # A finished translation can no longer be canceled.
            if index % 2 and task.cancel():
                cancelled.append(task)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for task, result in zip(tasks, results, strict=True):
            expected = asyncio.CancelledError | CancelledError if task in cancelled else TranslationResponse
            assert isinstance(result, expected)
        assert cancelled
        await bench.idle()

    bench.run(test)
    assert bench.registry.get_sample_value("dragoman_sequences_running", {"model": "tiny"}) == 0
    assert bench.registry.get_sample_value("dragoman_sequences_waiting", {"model": "tiny"}) == 0


def test_an_engine_that_stops_ends_every_translation() -> None:
    bench = Bench(slots=1)
    bench.model.gate.clear()
    drain = bench.scheduler.drain

    def drain_and_open() -> None:
        drain()
        bench.model.gate.set()

    bench.scheduler.drain = drain_and_open  # type: ignore[method-assign]

    async def test() -> None:
        tasks = [bench.translate(LONG), bench.translate(LONG)]
        await bench.stepping()
        await asyncio.to_thread(bench.engine.stop)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [DrainingError, DrainingError]

    bench.run(test)


def text_of(events: Iterable[Event], text_index: int = 0) -> str:
    """Returns the joined deltas of one text."""
    return "".join(event.text for event in events if is_delta(event) and event.text_index == text_index)


def is_delta(event: Event) -> TypeGuard[TranslationDelta]:
    return isinstance(event, TranslationDelta)


async def collect(events: AsyncGenerator[Event]) -> list[Event]:
    return [event async for event in events]


def test_a_stream_brings_each_text_piece_by_piece_and_in_the_end_the_response() -> None:
    bench = Bench()

    async def test() -> None:
        *deltas, response = await collect(bench.stream("3 4", LONG, "6 7 8"))
        assert isinstance(response, TranslationResponse)
        expected = await bench.translate("3 4", LONG, "6 7 8")
        assert response.translations == expected.translations
        for index, translation in enumerate(response.translations):
            own = [event for event in deltas if is_delta(event) and event.text_index == index]
            assert text_of(own, index) == translation.text
            assert [event.finish_reason for event in own] == [None] * (len(own) - 1) + [translation.finish_reason]
            assert own[-1].target_tokens == translation.target_tokens
            assert [event.target_tokens for event in own] == sorted(event.target_tokens for event in own)

    bench.run(test)
    assert bench.registry.get_sample_value("dragoman_request_texts_count", {"model": "tiny"}) == 2


def test_a_token_is_there_before_the_next_one_is_computed() -> None:
    bench = Bench()
    steps: list[int] = []

    async def test() -> None:
        bench.model.gate.clear()
        bench.model.on_step = bench.model.gate.clear
        async with aclosing(bench.stream(LONG)) as events:
            bench.model.gate.set()
            async for event in events:
                if is_delta(event) and event.finish_reason is None:
                    steps.append(len(bench.model.steps))
                    assert event.target_tokens == len(steps)
                bench.model.gate.set()

    bench.run(test)
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) > 5


def test_deltas_that_are_not_consumed_in_time_are_merged() -> None:
    bench = Bench()

    async def test() -> None:
        async with aclosing(bench.stream(LONG)) as events:
            first = await bench.first_delta(events)
            await bench.idle()
            *further, response = await collect(events)
        assert isinstance(response, TranslationResponse)
        assert text_of([first, *further]) == response.translations[0].text
        assert len(further) <= 2

    bench.run(test)


@pytest.mark.parametrize(
    "options",
    [
        SearchOptions(max_target_tokens=MAX_TARGET_TOKENS, beam_size=3, hypotheses=2),
        SearchOptions(max_target_tokens=MAX_TARGET_TOKENS, temperature=1.0, hypotheses=2),
    ],
)
def test_what_is_chosen_among_several_hypotheses_comes_in_one_piece(options: SearchOptions) -> None:
    bench = Bench()

    async def test() -> None:
        delta, response = await collect(bench.stream(LONG, plan=SearchPlan(options)))
        assert isinstance(response, TranslationResponse)
        (translation,) = response.translations
        assert delta == TranslationDelta(
            text_index=0,
            text=translation.text,
            target_tokens=translation.target_tokens,
            finish_reason=translation.finish_reason,
        )
        assert len(translation.alternatives) == 1

    bench.run(test)


def test_a_stream_of_samples_has_the_very_tokens_of_a_single_answer() -> None:
    bench = Bench()
    plan = SearchPlan(SearchOptions(max_target_tokens=MAX_TARGET_TOKENS, temperature=1.0, seed=5))

    async def test() -> None:
        (expected,) = (await bench.translate(LONG, plan=plan)).translations
        events = await collect(bench.stream(LONG, plan=plan))
        assert text_of(events) == expected.text

    bench.run(test)


def test_a_closed_stream_gives_back_its_slots_within_one_step() -> None:
    bench = Bench()

    async def test() -> None:
        bench.model.on_step = bench.model.gate.clear
        async with aclosing(bench.stream(LONG, LONG)) as events:
            await anext(events)
        bench.model.gate.set()
        await bench.idle()
        assert len(bench.model.steps) <= 2

    bench.run(test)
    assert bench.finished("cancelled") == 2


def test_a_stream_whose_model_fails_says_so_after_what_it_has_sent() -> None:
    bench = Bench()

    async def test() -> None:
        events = bench.stream(f"{POISON_ID} {ENDLESS_ID}")
        assert (await bench.first_delta(events)).text
        with pytest.raises(InternalError):
            await collect(events)

    bench.run(test)


def test_an_error_that_comes_while_a_delta_is_being_sent_ends_the_stream() -> None:
    """The failed text has no translation to report, although its end is already known."""
    bench = Bench()

    async def test() -> None:
        events = bench.stream(LONG, f"{POISON_ID} {ENDLESS_ID}")
        await bench.first_delta(events)
        await bench.idle()
        with pytest.raises(InternalError):
            await collect(events)

    bench.run(test)


def test_a_stream_keeps_its_deadline_even_if_the_model_hangs() -> None:
    bench = Bench()
    bench.model.gate.clear()

    async def test() -> None:
        with pytest.raises(DeadlineExceededError):
            await anext(bench.stream(LONG, deadline_seconds=time.monotonic() + 0.05))
        bench.model.gate.set()
        await bench.idle()

    bench.run(test)
    assert bench.finished("deadline_exceeded") == 1


def test_a_stream_is_admitted_as_any_request_is() -> None:
    bench = Bench()
    bench.readiness.verified = False

    async def test() -> None:
        with pytest.raises(NotReadyError):
            await anext(bench.stream("3"))

    bench.run(test)


def test_an_answer_that_is_kept_costs_no_step_and_says_so() -> None:
    bench = Bench(cache_bytes=1 << 20)

    async def test() -> None:
        first = (await bench.translate("7 8", LONG)).translations
        steps = len(bench.model.steps)
        second = (await bench.translate(LONG, "7 8")).translations
        assert len(bench.model.steps) == steps
        assert [each.cached for each in (*first, *second)] == [False, False, True, True]
        assert [replace(each, cached=False) for each in second[::-1]] == list(first)

    bench.run(test)
    assert (bench.cached("hit"), bench.cached("miss")) == (2, 2)


def test_only_the_texts_that_are_not_kept_are_computed() -> None:
    bench = Bench(cache_bytes=1 << 20)

    async def test() -> None:
        await bench.translate("5")
        translations = (await bench.translate("7 8", "5", LONG)).translations
        assert [each.cached for each in translations] == [False, True, False]
        expected = [translate((*ids, EOS_ID), MAX_TARGET_TOKENS)[0] for ids in ((7, 8), (5,), long_source())]
        assert [each.text for each in translations] == [" ".join(map(str, ids)) for ids in expected]

    bench.run(test)


def test_without_a_cache_answers_do_not_speak_of_one() -> None:
    bench = Bench()

    async def test() -> None:
        for _ in range(2):
            (translation,) = (await bench.translate("3")).translations
            assert translation.cached is None

    bench.run(test)


@pytest.mark.parametrize(("repeatable", "hits"), [(True, 1), (False, 0)])
def test_what_is_drawn_with_a_seed_of_the_server_is_neither_kept_nor_looked_up(
    repeatable: bool,
    hits: int,
) -> None:
    bench = Bench(cache_bytes=1 << 20)
    options = SearchOptions(max_target_tokens=MAX_TARGET_TOKENS, temperature=1.0, seed=5)

    async def test() -> None:
        for _ in range(2):
            await bench.translate("3", plan=SearchPlan(options, repeatable=repeatable))

    bench.run(test)
    assert (bench.cached("hit"), bench.cached("miss")) == (hits, hits)


def test_what_fails_is_not_kept_nor_what_was_asked_for_with_it() -> None:
    bench = Bench(cache_bytes=1 << 20)

    async def test() -> None:
        for _ in range(2):
            with pytest.raises(InternalError):
                await bench.translate("3", f"{POISON_ID} {ENDLESS_ID}")
        with pytest.raises(DeadlineExceededError):
            await bench.translate("3", deadline_seconds=time.monotonic() - 1)

    bench.run(test)
    assert bench.cached("hit") == 0


def test_a_stream_takes_from_the_cache_and_gives_to_it() -> None:
    bench = Bench(cache_bytes=1 << 20)

    async def test() -> None:
        *deltas, first = await collect(bench.stream(LONG))
        delta, second = await collect(bench.stream(LONG))
        assert isinstance(first, TranslationResponse)
        assert isinstance(second, TranslationResponse)
        assert second.translations == (replace(first.translations[0], cached=True),)
        assert is_delta(delta)
        assert (delta.text, delta.finish_reason) == (text_of(deltas), first.translations[0].finish_reason)
        *_, third = await collect(bench.stream("7 8", LONG, "5"))
        assert isinstance(third, TranslationResponse)
        assert [each.cached for each in third.translations] == [False, True, False]

    bench.run(test)


def test_a_refused_request_gets_no_cached_result() -> None:
    bench = Bench(cache_bytes=1 << 20)

    async def test() -> None:
        await bench.translate("3")
        bench.readiness.verified = False
        with pytest.raises(NotReadyError):
            await bench.translate("3")

    bench.run(test)


plans = st.builds(
    SearchPlan,
    st.sampled_from(
        [
            SearchOptions(max_target_tokens=MAX_TARGET_TOKENS),
            SearchOptions(max_target_tokens=3),
            SearchOptions(max_target_tokens=MAX_TARGET_TOKENS, beam_size=3, hypotheses=2),
            SearchOptions(max_target_tokens=MAX_TARGET_TOKENS, temperature=1.0, seed=1),
            SearchOptions(max_target_tokens=MAX_TARGET_TOKENS, temperature=1.0, seed=2, hypotheses=2),
        ]
    ),
    token_scores=st.booleans(),
)
asked_texts = st.lists(st.sampled_from(["3", "4 5", LONG, "6 7 8"]), min_size=1, max_size=4)


@given(requests=st.lists(st.tuples(asked_texts, plans), max_size=12), cache_bytes=st.sampled_from([1, 5000, 1 << 20]))
@settings(max_examples=30, deadline=None)
def test_answers_are_the_same_with_and_without_a_cache(
    requests: list[tuple[list[str], SearchPlan]], cache_bytes: int
) -> None:
    """Bit for bit, for any earlier requests and any cache size."""
    answers = []
    for bench in (Bench(queue_limit=100), Bench(queue_limit=100, cache_bytes=cache_bytes)):

        async def test(bench: Bench = bench) -> None:
            responses = [await bench.translate(*texts, plan=plan) for texts, plan in requests]
            translations = [each for response in responses for each in response.translations]
            answers.append([replace(each, cached=None) for each in translations])

        bench.run(test)
    assert answers[0] == answers[1]
