"""Both modes of the server: all sentences at once, and one at a time. A part of `dragoman bench scheduling`."""

from dataclasses import dataclass

from benchmarks.harness.process import Launch
from benchmarks.harness.rounds import Player, Progress, format_spread, play, steps_of
from benchmarks.scheduling_options import SchedulingOptions
from benchmarks.scheduling_stalls import ScheduledModel
from loadtest.report_files import markdown_table
from serve.system import available_cpus

TOGETHER, ALONE = "together", "alone"
# Of sequences that the scheduler batches by itself, any will do.
BATCHING = "1:examples"


@dataclass(frozen=True, slots=True)
class ModeResult:
    """One mode.

    Attributes:
        mode: its name.
        engines: that it starts.
        threads: of each.
        tokens_per_second: all sentences at once, round by round.
        alone_ms: one sentence at a time, the mean time of one, round by round.
    """

    mode: str
    engines: int
    threads: int
    tokens_per_second: list[float]
    alone_ms: list[float]


def steps(options: SchedulingOptions) -> int:
    """Returns how many steps `measure` tells a progress bar."""
    return steps_of(2, 2, options.rounds)


def measure(model: ScheduledModel, options: SchedulingOptions, progress: Progress) -> list[ModeResult]:
    """Measures both modes in turns.

    Raises:
        SystemFailedError: if one fails.
    """
    cpus = available_cpus()
    shapes = {"throughput": (cpus, 1), "latency": (1, cpus)}
    tasks = {
        ALONE: {"beam_size": 1, "batching": BATCHING, "alone": options.alone},
        TOGETHER: {"beam_size": 1, "batching": BATCHING},
    }
    players = [Player(launch(model, mode, shape, options.slots), tasks) for mode, shape in shapes.items()]
    played = play(players, rounds=options.rounds, seconds=None, progress=progress)
    return [
        ModeResult(
            mode,
            *shape,
            [each.tokens_per_second[TOGETHER] for each in played[mode]],
            [1e3 * each.seconds[ALONE] / min(options.alone, len(model.sentences)) for each in played[mode]],
        )
        for mode, shape in shapes.items()
    ]


def launch(model: ScheduledModel, name: str, shape: tuple[int, int], slots: int) -> Launch:
    """Returns how the engines of the server are started in a process of their own.

    Args:
        model: that they serve.
        name: in messages.
        shape: engines, and threads of each.
        slots: of each.
    """
    engines, threads = shape
    options = {"copies": engines, "threads": threads, "slots": slots}
    places = {"folder": str(model.folder), "sentences": str(model.sentences_file)}
    return Launch(name, "benchmarks.systems.engine_translator", {**places, **options})


def table(results: dict[str, list[ModeResult]]) -> str:
    """Returns the table of all models; ratios are to the first mode."""
    heading = ["model", "mode", "engines x threads", "all at once, tokens/s", "one sentence at a time, ms"]
    rows = []
    for name, modes in results.items():
        first = modes[0]
        for mode in modes:
            base = (None, None) if mode is first else (first.tokens_per_second, first.alone_ms)
            cells = [format_spread(mode.tokens_per_second, base[0]), format_spread(mode.alone_ms, base[1])]
            rows.append([name, mode.mode, f"{mode.engines} x {mode.threads}", *cells])
    return markdown_table(heading, rows, words=3)
