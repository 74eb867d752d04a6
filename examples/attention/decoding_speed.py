"""How fast models translate in PyTorch: target tokens per second of greedy decoding.

This compares architectures under the same conditions; how fast a model is served is another matter, that of
`dragoman load`. Called by `dragoman attention`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from model.generate import generate_greedy
from model.network.translation_model import TranslationModel

ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Task:
    """A model in evaluation mode, and the sources that it is to translate: at least one, each ending in EOS."""

    model: TranslationModel
    sources: Sequence[Sequence[int]]


def measure_speeds(
    tasks: Mapping[str, Task], batch_size: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Returns for each task its target tokens per second, end tokens included.

    The tasks take turns, and the fastest round of each counts: so what else the machine does hits none of them alone.

    Args:
        tasks: by name.
        batch_size: sources, of like length, that are translated at a time.
        clock: tells the time in seconds.
    """
    speeds = dict.fromkeys(tasks, 0.0)
    for _ in range(ROUNDS):
        for name, task in tasks.items():
            speeds[name] = max(speeds[name], _tokens_per_second(task, batch_size, clock))
    return speeds


def _tokens_per_second(task: Task, batch_size: int, clock: Callable[[], float]) -> float:
    ordered = sorted(task.sources, key=len)
    batches = [ordered[start : start + batch_size] for start in range(0, len(ordered), batch_size)]
    started = clock()
    # A step has one gap, also the step that ends the translation.
    tokens = sum(len(generated.gaps) for batch in batches for generated in generate_greedy(task.model, batch))
    return tokens / (clock() - started)
