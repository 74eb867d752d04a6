"""How much longer a short request takes beside others of maximum length. A part of `dragoman bench scheduling`.

A server that batches whole requests would answer the short one when the long ones have ended; the table tells how long
those take as well.
"""

import threading
from dataclasses import dataclass

import numpy as np

from benchmarks.harness.rounds import Progress, Spread, format_spread
from benchmarks.scheduling_options import SchedulingOptions
from benchmarks.scheduling_stalls import ScheduledModel, Wish, search
from benchmarks.systems.engine import LiveEngines
from loadtest.report_files import markdown_table
from serve.runtime.cpu import Sessions
from serve.scheduler.sequence import DecodingSequence
from serve.settings import ServeSettings
from serve.system import available_cpus


@dataclass(frozen=True, slots=True)
class Beside:
    """Short requests beside long ones.

    Attributes:
        neighbors: long requests that each engine holds all the time.
        median_ms: from submission to answer of a short request, round by round.
        p99_ms: the same.
        long_median_ms: of a long request, round by round; nothing if there are none.
    """

    neighbors: int
    median_ms: list[float]
    p99_ms: list[float]
    long_median_ms: list[float]


def steps(options: SchedulingOptions) -> int:
    """Returns how many steps `measure` tells a progress bar."""
    return options.rounds * (1 + len(options.neighbors))


def measure(model: ScheduledModel, options: SchedulingOptions, progress: Progress) -> list[Beside]:
    """Measures short requests alone and beside any number of long ones, in turns.

    Raises:
        ServiceError: if an engine fails.
    """
    sessions = model.sessions(threads=1)
    manifest = sessions.manifest
    short = model.made_up(options.short_tokens, options.short_tokens)
    long = model.made_up(manifest.max_source_tokens, manifest.max_target_tokens)
    results = [Beside(neighbors, [], [], []) for neighbors in (0, *dict.fromkeys(options.neighbors))]
    for _ in range(options.rounds):
        for result in results:
            latencies, long_latencies = _latencies_ms(
                sessions, options, short, long, available_cpus() * result.neighbors
            )
            median, p99 = np.percentile(latencies, (50, 99)).tolist()
            result.median_ms.append(median)
            result.p99_ms.append(p99)
            if long_latencies:
                result.long_median_ms.append(float(np.median(long_latencies)))
            progress.update()
    return results


def _latencies_ms(
    sessions: Sessions, options: SchedulingOptions, short: Wish, long: Wish, count: int
) -> tuple[list[float], list[float]]:
    """Returns how long short requests take, one after the other, and so many long ones beside them, in milliseconds."""
    long_latencies: list[float] = []
    stopping = threading.Event()
    budget = ServeSettings().prefill_token_budget
    with LiveEngines.run(
        sessions, engines=available_cpus(), slots=options.slots, prefill_token_budget=budget
    ) as engines:

        def replace(ended: DecodingSequence) -> None:
            if not stopping.is_set() and ended.error is None:
                if ended.options == long[1]:
                    long_latencies.append(_latency_ms(ended))
                engines.submit([long], replace)

        # At first of many lengths, so that later ones do not begin and end together.
        source_ids, longest = long
        for number in range(count):
            target_tokens = 1 + number * longest.max_target_tokens // count
            engines.submit([(source_ids, search(target_tokens, target_tokens))], replace)
        warm_up, measured = options.short_requests // 10, options.short_requests
        latencies = [_latency_ms(*engines.translate([short])) for _ in range(warm_up + measured)]
        stopping.set()
    return latencies[warm_up:], long_latencies


def _latency_ms(sequence: DecodingSequence) -> float:
    return 1e3 * (sequence.finished_seconds - sequence.submitted_seconds)


def table(results: dict[str, list[Beside]]) -> str:
    """Returns the table of all models; ratios are to the same figure of a short request alone."""
    heading = ["model", "long requests in each engine", "short request, median, ms", "p99, ms", "long request, ms"]
    rows = []
    for name, found in results.items():
        alone = found[0]
        for result in found:
            base = (None, None) if result is alone else (alone.median_ms, alone.p99_ms)
            rows.append(
                [
                    name,
                    str(result.neighbors),
                    format_spread(result.median_ms, base[0]),
                    format_spread(result.p99_ms, base[1]),
                    f"{Spread.of(result.long_median_ms).median:,.0f}" if result.long_median_ms else "-",
                ]
            )
    return markdown_table(heading, rows)
