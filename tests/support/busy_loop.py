"""The throughput of one native engine next to an event loop that holds the interpreter's lock.

    python -m tests.support.busy_loop BUNDLE

The loop works in bursts, as parsing requests and writing answers does, and sleeps for a millisecond between them.
"""

import asyncio
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from statistics import median

from benchmarks.systems.engine import specs_of
from benchmarks.systems.native_engine import LiveNativeEngines, settings_of
from benchmarks.systems.translating import SourceSentence, draw_sentences
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.engine.native.model import open_model
from dragoman.serve.scheduler.sequence import SequenceSpec

BURSTS_SECONDS = (0.0, 0.0003, 0.001, 0.004)
PASSES, ROUNDS, SENTENCES, TOKENS = 3, 5, 1000, 16


def burn(seconds: float) -> None:
    """Computes in Python for the given time."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


async def work_in_bursts(seconds: float, stop: threading.Event) -> None:
    """Works until it is stopped."""
    while not stop.is_set():
        burn(seconds)
        await asyncio.sleep(0.001)


def tokens_per_second(engines: LiveNativeEngines, specs: list[SequenceSpec], burst_seconds: float) -> float:
    """Returns the throughput next to an event loop of such bursts; 0: without one."""
    stop = threading.Event()
    rates = []

    def translate() -> None:
        started, tokens = time.perf_counter(), 0
        for _ in range(PASSES):
            tokens += sum(len(each.best.target_ids) for each in engines.translate(specs))
        rates.append(tokens / (time.perf_counter() - started))
        stop.set()

    thread = threading.Thread(target=translate)
    thread.start()
    if burst_seconds:
        asyncio.run(work_in_bursts(burst_seconds, stop))
    thread.join()
    return rates[0]


def main(bundle: Bundle) -> None:
    """Prints the throughput for each length of the bursts, as a median of rounds and of ratios within rounds."""
    manifest = bundle.manifest
    drawn = draw_sentences(1, [(TOKENS, TOKENS)] * SENTENCES, manifest.vocabulary_size, manifest.eos_id)
    specs = specs_of([SourceSentence(each.source_ids, 0, TOKENS) for each in drawn], beam_size=1)
    with closing(LiveNativeEngines(bundle, settings_of(bundle, engines=1, slots=64), open_model(bundle, 1))) as engines:
        engines.translate(specs)
        rounds = [[tokens_per_second(engines, specs, burst) for burst in BURSTS_SECONDS] for _ in range(ROUNDS)]
    for place, burst in enumerate(BURSTS_SECONDS):
        ratios = [each[place] / each[0] for each in rounds]
        rate = median(each[place] for each in rounds)
        print(f"bursts of {1e3 * burst:.1f} ms: {rate:,.0f} tokens/s, {median(ratios):.2f}x", end=" ")
        print(f"({min(ratios):.2f}-{max(ratios):.2f})")


if __name__ == "__main__":
    main(Bundle.open(Path(sys.argv[1])))
