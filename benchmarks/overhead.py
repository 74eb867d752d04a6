"""What one client waits for beside the engine: the same sentences, one at a time, by every way in turn.

The difference of two ways is taken sentence by sentence, within milliseconds of each other, so that what else the
machine does hits both alike. Every sentence begins with another way. Called by `benchmarks.service`.
"""

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.rounds import in_turn
from benchmarks.lone_clients import LoneClient, LoneClientError
from benchmarks.service_results import ENGINE, OverheadResult, Quartiles, Way, WayResult
from benchmarks.service_sentences import ServiceSentence

# Connections, caches and the memory of both engines are as they stay; answers are compared meanwhile.
WARM_UP_SENTENCES = 20
_PERCENTS = (25, 50, 75)


def measure_overhead(
    clients: Mapping[Way, LoneClient],
    sentences: Sequence[ServiceSentence],
    rounds: int,
    advance: Callable[[], object],
    clock: Callable[[], int] = time.perf_counter_ns,
) -> OverheadResult:
    """Returns what every way costs.

    Args:
        clients: one for each way, that of the bare engine first.
        sentences: what is asked for.
        rounds: how often.
        advance: is called after each of them.
        clock: the time in nanoseconds.

    Raises:
        LoneClientError: if a sentence is not translated, or otherwise than by the bare engine.
        ServiceError: if the bare engine fails.
    """
    ways = list(clients)
    for sentence in sentences[:WARM_UP_SENTENCES]:
        _ask_all(clients, ways, sentence, clock)
    taken_ms: dict[Way, NDArray[np.float64]] = {way: np.zeros((rounds, len(sentences))) for way in ways}
    for number in range(rounds):
        for place, sentence in enumerate(sentences):
            for way, milliseconds in _ask_all(clients, in_turn(ways, number + place), sentence, clock).items():
                taken_ms[way][number, place] = milliseconds
        advance()
    return OverheadResult(len(sentences), rounds, [_result(way, taken_ms[way], taken_ms[ENGINE]) for way in ways])


def _ask_all(
    clients: Mapping[Way, LoneClient], order: Sequence[Way], sentence: ServiceSentence, clock: Callable[[], int]
) -> dict[Way, float]:
    """Returns how long every way took for a sentence, in milliseconds."""
    taken_ms, answers = {}, {}
    for way in order:
        started_ns = clock()
        answers[way] = clients[way].ask(sentence)
        taken_ms[way] = (clock() - started_ns) / 1e6
    expected = answers[ENGINE]()
    for way, answer in answers.items():
        if answer() != expected:
            raise LoneClientError(f"{way}: {sentence.text}: {answer()}: expected as the bare engine says: {expected}")
    return taken_ms


def _result(way: Way, taken_ms: NDArray[np.float64], engine_ms: NDArray[np.float64]) -> WayResult:
    """Returns what was found of a way, of float64 [rounds, sentences]."""
    over_ms = taken_ms - engine_ms
    compared = way != ENGINE
    return WayResult(
        way,
        _quartiles(taken_ms),
        _quartiles(over_ms) if compared else None,
        np.median(over_ms, axis=1).tolist() if compared else [],
    )


def _quartiles(values: NDArray[np.float64]) -> Quartiles:
    return Quartiles(*np.percentile(values, _PERCENTS).tolist())
