"""The bridge between the event loop and the engines: timing, cancellation, failure and the tokenizer's limits."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from collections.abc import Sequence as Sequences
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from serve.answer import TranslationResponse
from serve.engine import Engine
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
from serve.metrics import Metrics
from serve.options import SearchOptions
from serve.readiness import Readiness
from serve.request import FinishReason, TextRequest, TranslationRequest
from serve.scheduler import Scheduler
from serve.search_limits import SearchPlan
from serve.sequence import Sequence
from serve.target_vocabulary import TargetVocabulary
from serve.translator import Translator
from tests.fakes import BOS_ID, ENDLESS_ID, EOS_ID, PAD_ID, POISON_ID, VOCABULARY, translate
from tests.live import GatedModel

MAX_TARGET_TOKENS = 20
MAX_SOURCE_TOKENS = 6
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


class Bench:
    """A translator in front of one engine with a gated model."""

    def __init__(self, slots: int = 4, queue_limit: int = 4) -> None:
        self.registry = CollectorRegistry()
        metrics = Metrics(self.registry, "tiny")
        self.model = GatedModel(slots)
        self.scheduler = Scheduler(slots, queue_limit, 100, metrics)
        self.engine = Engine(
            self.model,
            self.scheduler,
            metrics,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            pad_id=PAD_ID,
            max_target_tokens=MAX_TARGET_TOKENS,
        )
        self.readiness = Readiness(metrics, lambda: self.engine.healthy, lambda: self.engine.hanging)
        self.readiness.proven = True
        self.translator = Translator(
            tokenizer=NumberTokenizer(),
            vocabulary=TargetVocabulary.of(NumberTokenizer().target_pieces, unk_id=3, eos_id=EOS_ID),
            scheduler=self.scheduler,
            readiness=self.readiness,
            metrics=metrics,
            source_suffix=(EOS_ID,),
            max_source_tokens=MAX_SOURCE_TOKENS,
            default_timeout_seconds=20.0,
        )

    def run(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs a coroutine while the engine runs."""
        self.engine.start()
        try:
            asyncio.run(test())
        finally:
            self.model.gate.set()
            self.engine.stop()

    def translate(
        self,
        *texts: str,
        source_prefix: tuple[int, ...] = (),
        plan: SearchPlan = GREEDY,
        deadline_seconds: float | None = None,
    ) -> asyncio.Task[TranslationResponse]:
        """Starts a translation."""
        requests = tuple(TextRequest(text, "", f"text[{index}]", "none") for index, text in enumerate(texts))
        request = TranslationRequest(requests, source_prefix, plan, deadline_seconds)
        return asyncio.create_task(self.translator.translate(request))

    async def stepping(self) -> None:
        """Waits until the model stands before its gate with the rows of a step."""
        assert await asyncio.to_thread(self.model.stepping.wait, 20)

    def finished(self, reason: str) -> float | None:
        """Returns how many sequences ended so."""
        labels = {"model": "tiny", "reason": reason}
        return self.registry.get_sample_value("dragoman_sequences_finished_total", labels)


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
    """The limit counts the end token."""
    bench = Bench()

    async def test() -> None:
        await bench.translate("3 4 5 6 7")
        with pytest.raises(InvalidRequestError, match=r"^text\[1\]: 7 tokens, expected at most 6$"):
            await bench.translate("3", "3 4 5 6 7 8")
        assert bench.scheduler.idle

    bench.run(test)


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
        assert await asyncio.to_thread(bench.scheduler.wait_idle, 20)

    bench.run(test)
    assert len(bench.model.steps) == 1
    assert bench.finished("cancelled") == 2


def test_when_one_text_fails_the_others_are_cancelled() -> None:
    bench = Bench(slots=1)
    finish = bench.scheduler.finish

    def finish_and_wait(sequence: Sequence, error: ServiceError | None = None) -> None:
        if isinstance(error, InternalError):
            bench.model.gate.clear()
        finish(sequence, error)

    bench.scheduler.finish = finish_and_wait  # type: ignore[method-assign]

    async def test() -> None:
        with pytest.raises(InternalError):
            await bench.translate(f"{POISON_ID} {ENDLESS_ID}", LONG, LONG)
        bench.model.gate.set()
        assert await asyncio.to_thread(bench.scheduler.wait_idle, 20)

    bench.run(test)
    assert bench.finished("internal") == 1
    assert bench.finished("cancelled") == 2


def test_the_deadline_is_kept_even_if_the_model_hangs() -> None:
    bench = Bench()
    bench.model.gate.clear()

    async def test() -> None:
        with pytest.raises(DeadlineExceededError):
            await bench.translate(LONG, deadline_seconds=time.monotonic() + 0.05)
        bench.model.gate.set()
        assert await asyncio.to_thread(bench.scheduler.wait_idle, 20)

    bench.run(test)
    assert bench.finished("deadline_exceeded") == 1


def test_an_expired_deadline_is_refused_without_a_step() -> None:
    bench = Bench()

    async def test() -> None:
        with pytest.raises(DeadlineExceededError):
            await bench.translate(LONG, deadline_seconds=time.monotonic() - 1)
        assert await asyncio.to_thread(bench.scheduler.wait_idle, 20)

    bench.run(test)
    assert bench.model.steps == []


def test_a_request_without_a_deadline_gets_one() -> None:
    bench = Bench()
    bench.model.gate.clear()
    deadlines: list[float | None] = []
    submit = bench.scheduler.submit

    def record(sequences: Sequences[Sequence]) -> None:
        deadlines.extend(sequence.deadline_seconds for sequence in sequences)
        submit(sequences)

    bench.scheduler.submit = record  # type: ignore[method-assign, assignment]

    async def test() -> None:
        before_seconds = time.monotonic()
        task = bench.translate("3")
        await bench.stepping()
        bench.model.gate.set()
        await task
        (deadline_seconds,) = deadlines
        assert deadline_seconds is not None
        assert 20 <= deadline_seconds - before_seconds < 40

    bench.run(test)


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


def test_nothing_is_let_in_before_the_model_is_proven() -> None:
    bench = Bench()
    bench.readiness.proven = False

    async def test() -> None:
        with pytest.raises(NotReadyError, match=r"^warming up$"):
            await bench.translate("3")

    bench.run(test)


def test_a_failing_model_closes_the_door() -> None:
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
    """Between texts, others get their turn."""
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
            # One whose translation is complete already can no longer be cancelled.
            if index % 2 and task.cancel():
                cancelled.append(task)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for task, result in zip(tasks, results, strict=True):
            expected = asyncio.CancelledError | CancelledError if task in cancelled else TranslationResponse
            assert isinstance(result, expected)
        assert cancelled
        assert await asyncio.to_thread(bench.scheduler.wait_idle, 20)

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
