"""A translator in front of one engine with a gated model, for tests inside the event loop."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Self

from prometheus_client import CollectorRegistry

from dragoman.serve.bundle.manifest import BundleDirection
from dragoman.serve.engine.engine import Engine
from dragoman.serve.engine.engines import Readiness
from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.scheduler.scheduler import Scheduler
from dragoman.serve.search.hypothesis import FinishReason
from dragoman.serve.search.options import SearchOptions
from dragoman.serve.translation.cache import ResultCache
from dragoman.serve.translation.fields import DEFAULT_SEARCH, SearchFields
from dragoman.serve.translation.job import Job
from dragoman.serve.translation.response import Translation, TranslationDelta, TranslationResponse
from dragoman.serve.translation.segments import TargetVocabulary, TextModel
from dragoman.serve.translation.translator import Translator
from tests.support.fakes import EOS_ID, VOCABULARY, fake_manifest, translate
from tests.support.live import WAIT_SECONDS, GatedModel, eventually

MAX_TARGET_TOKENS = 20
MAX_SOURCE_TOKENS = 6
LETTERS, DIGITS = str.maketrans("0123456789", "abcdefghij"), str.maketrans("abcdefghij", "0123456789")
GREEDY = SearchOptions(max_target_tokens=MAX_TARGET_TOKENS)
Event = TranslationDelta | TranslationResponse


class NumberTokenizer:
    """A tokenizer whose texts are token ids; in requests, their digits are letters, since numbers stay as they are."""

    target_pieces = tuple(map(str, range(VOCABULARY)))
    target_unk_id = 3

    def encode(self, text: str) -> list[int]:
        return [int(part) for part in text.translate(DIGITS).split()]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        return list(map(self.encode, texts))

    def encode_target(self, text: str) -> list[int]:
        return self.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))

    def decode_all(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        return list(map(self.decode, sequences))

    def encode_offsets(self, text: str) -> list[tuple[int, int]]:
        return [number.span() for number in re.finditer(r"\w+", text)]

    def decode_offsets(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        return self.encode_offsets(self.decode(ids))


class TranslatorBench:
    """The parts of a translator; a context manager that runs the engine."""

    def __init__(self, slots: int = 4, queue_limit: int = 4, cache_bytes: int | None = None) -> None:
        self.registry = CollectorRegistry()
        metrics = Metrics(self.registry, "tiny")
        self.model = GatedModel(slots)
        self.scheduler = Scheduler(slots, queue_limit, 100, metrics)
        self.engine = Engine(self.model, self.scheduler, metrics, fake_manifest(MAX_TARGET_TOKENS))
        self.readiness = Readiness(metrics, [self.engine])
        self.readiness.verified = True
        self.translator = Translator(
            TextModel(
                NumberTokenizer(),
                TargetVocabulary.of(NumberTokenizer.target_pieces, unk_id=3, eos_id=EOS_ID),
                (EOS_ID,),
                MAX_SOURCE_TOKENS,
            ),
            self.scheduler,
            self.readiness,
            metrics,
            cache=None if cache_bytes is None else ResultCache(cache_bytes, metrics),
        )

    def use(self, tokenizer: NumberTokenizer) -> None:
        """Tokenizes sources with another tokenizer from now on."""
        self.translator._model = replace(self.translator._model, tokenizer=tokenizer)

    def __enter__(self) -> Self:
        self.engine.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.model.gate.set()
        self.engine.stop()

    def translate(
        self,
        *texts: str,
        source_prefix: tuple[int, ...] = (),
        options: SearchOptions = GREEDY,
        fields: SearchFields = DEFAULT_SEARCH,
        deadline_seconds: float | None = None,
    ) -> asyncio.Task[TranslationResponse]:
        return asyncio.create_task(
            self.translator.translate(made_job(texts, options, deadline_seconds, source_prefix, fields))
        )

    async def stream(
        self, *texts: str, options: SearchOptions = GREEDY, deadline_seconds: float | None = None
    ) -> AsyncGenerator[Event]:
        async with aclosing(self.translator.stream(made_job(texts, options, deadline_seconds))) as events:
            async for event in events:
                yield event

    async def idle(self) -> None:
        """Returns when no sequence waits or runs."""
        await asyncio.to_thread(eventually, lambda: self.scheduler.idle)

    async def stepping(self) -> None:
        """Waits until the model blocks at its gate with the rows of a step."""
        assert await asyncio.to_thread(self.model.stepping.wait, WAIT_SECONDS)

    async def first_delta(self, events: AsyncGenerator[Event]) -> TranslationDelta:
        """Returns the delta of the first step, before the second step runs."""
        self.model.on_step = self.model.gate.clear
        event = await anext(events)
        assert isinstance(event, TranslationDelta)
        self.model.on_step = lambda: None
        self.model.gate.set()
        return event

    def sample(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"dragoman_{name}", {"model": "tiny", **labels})

    def finished(self, reason: str) -> float | None:
        return self.sample("sequences_finished_total", reason=reason)

    @property
    def lookups(self) -> tuple[float | None, float | None]:
        hits, misses = (self.sample("result_cache_lookups_total", result=result) for result in ("hit", "miss"))
        return hits, misses


def made_job(
    texts: tuple[str, ...],
    options: SearchOptions = GREEDY,
    deadline_seconds: float | None = None,
    source_prefix: tuple[int, ...] = (),
    fields: SearchFields = DEFAULT_SEARCH,
) -> Job:
    """Returns a job; without a deadline, with one that is far enough away."""
    direction = BundleDirection(source="en", target="de", source_prefix=source_prefix)
    letters = [text.translate(LETTERS) for text in texts]
    deadline_seconds = deadline_seconds or time.monotonic() + WAIT_SECONDS
    return Job(texts=letters, direction=direction, options=options, fields=fields, deadline_seconds=deadline_seconds)


def made_translation(text: str, length: int = 1, /, **different: Any) -> Translation:
    """Returns a translation whose numbers follow from its length in tokens, unless they are given."""
    fields: dict[str, Any] = {"text": text, "normalized_score": -1.0, "finish_reason": FinishReason.EOS}
    fields |= {"score": -float(length), "target_tokens": length, "source_tokens": length + 1, **different}
    return Translation(**fields)


def expected_text(*source_ids: int) -> str:
    return NumberTokenizer().decode(translate((*source_ids, EOS_ID), MAX_TARGET_TOKENS)[0])


# A source whose translation takes many steps.
LONG_IDS = next(
    (first, second)
    for first in range(3, 13)
    for second in range(3, 13)
    if len(translate((first, second, EOS_ID), MAX_TARGET_TOKENS)[0]) > 8
)
LONG = NumberTokenizer().decode(LONG_IDS)
