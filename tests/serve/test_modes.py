"""Both modes return bitwise the same translations."""

import asyncio
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.local.dispatcher import open_dispatcher
from dragoman.serve.scheduler.sequence import DecodingSequence, SequenceGroup
from dragoman.serve.search.options import SearchOptions
from dragoman.serve.settings import ServeSettings

SOURCES = [(*np.random.default_rng(seed).integers(4, 31, size=1 + seed % 30).tolist(), 2) for seed in range(60)]
# Target tokens and token scores of the best translation.
Found = tuple[tuple[int, ...], tuple[float, ...]]


@pytest.fixture(autouse=True)
def two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.serve.settings.available_cpus", lambda: 2)


async def translate(settings: ServeSettings) -> list[Found]:
    finished: SimpleQueue[list[DecodingSequence]] = SimpleQueue()
    sequences = [
        DecodingSequence(
            source_ids, SearchOptions(max_target_tokens=24, beam_size=1 + number % 3), SequenceGroup(finished.put)
        )
        for number, source_ids in enumerate(SOURCES)
    ]
    async with open_dispatcher(settings) as dispatcher:
        (pipeline,) = dispatcher._models.pipelines
        pipeline.scheduler.submit(sequences)
        for _ in sequences:
            await asyncio.to_thread(finished.get)
    return [(sequence.best.target_ids, sequence.best.token_scores) for sequence in sequences]


@pytest.mark.parametrize("kind", ["wide_bundle", "int8_bundle"])
def test_modes_differ_in_engines_and_threads_but_not_in_translations(kind: str, request: pytest.FixtureRequest) -> None:
    """The models are wide enough that ONNX Runtime splits an operator among threads."""
    bundle: Bundle = request.getfixturevalue(kind)

    def settings(**options: Any) -> ServeSettings:
        return ServeSettings(bundle=bundle.folder, slots=32, **options)

    choices = {
        (2, 1): settings(),
        (1, 2): settings(mode="latency"),
        (1, 1): settings(engines=1, threads_per_engine=1),
        (2, 2): settings(engines=2, threads_per_engine=2),
    }
    assert [(choice.engine_count, choice.engine_threads) for choice in choices.values()] == list(choices)
    throughput, *others = (asyncio.run(translate(choice)) for choice in choices.values())
    assert len(set(throughput)) > len(throughput) / 2
    assert others == [throughput] * 3
