"""The speed counts generated tokens, in the fastest of some rounds."""

from collections.abc import Callable
from itertools import accumulate, chain, repeat

import pytest

from examples.attention.runs import ROUNDS, Task, measure_speeds
from model.search import generate_greedy
from tests.support.toy import random_model, random_sources


def clock_of_passes(*seconds: float) -> Callable[[], float]:
    """Returns a clock for passes of the given durations, read before and after each."""
    return accumulate(chain.from_iterable(zip(repeat(0.0), seconds, strict=False))).__next__


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_every_generated_token_counts_eos_included(batch_size: int) -> None:
    model = random_model(1)
    sources = random_sources(model, 2, 7)
    tokens = sum(len(generated.gaps) for generated in generate_greedy(model, sources))
    speeds = measure_speeds({"run": Task(model, sources)}, batch_size, clock_of_passes(*[2.0] * ROUNDS))
    assert speeds == {"run": pytest.approx(tokens / 2)}


def test_the_fastest_round_of_each_task_counts() -> None:
    """The tasks take turns, so that other load slows all of them."""
    model = random_model(1)
    sources = random_sources(model, 2, 4)
    tokens = sum(len(generated.gaps) for generated in generate_greedy(model, sources))
    passes = [9.0, 9.0, 1.0, 5.0, 8.0, 4.0]  # first, second; first, second; first, second
    tasks = {"first": Task(model, sources), "second": Task(model, sources)}
    speeds = measure_speeds(tasks, 64, clock_of_passes(*passes))
    assert speeds == {"first": pytest.approx(tokens / 1), "second": pytest.approx(tokens / 4)}
