"""The time of a decoder step beside the least that it could take: reading every weight of the decoder once.

Steps are run for their own sake, on rows of one made-up source. Knows neither engine nor texts.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from export.inspect.stored_graph import StoredGraph
from serve.runtime.model_sessions import ModelSessions

# The first steps of a size are planned, or captured as a CUDA graph.
WARM_UP_STEPS = 5
COPIED_BYTES = 1 << 28
COPIES = 5


@dataclass(frozen=True, slots=True)
class StepTime:
    """Medians over steps, in seconds.

    Attributes:
        rows: of each step.
        decoder_seconds: the decoder alone, until its logits are there.
        step_seconds: with the choice of the tokens, which the host gets.
    """

    rows: int
    decoder_seconds: float
    step_seconds: float


def time_steps(sessions: ModelSessions, rows: int, source_tokens: int, steps: int) -> StepTime:
    """Returns the time of a step of so many rows.

    Args:
        sessions: of the bundle.
        rows: of each step.
        source_tokens: of every row's source.
        steps: that are measured; at most the target tokens that the bundle takes, less those that warm up.
    """
    manifest, everything = sessions.manifest, np.arange(rows)
    model = sessions.runtime(rows)
    lengths = np.full(rows, source_tokens, np.int32)
    model.encode(np.full((rows, source_tokens), manifest.eos_id), lengths, everything)
    token_ids = np.full(rows, manifest.bos_id)
    decoders, totals = [], []
    for position in range(min(steps + WARM_UP_STEPS, manifest.max_target_tokens)):
        started = time.perf_counter()
        scores = model.step(token_ids, np.full(rows, position, np.int32), lengths)
        decoders.append(time.perf_counter() - started)
        token_ids = scores.greedy(everything)
        scores.of(everything, token_ids)
        totals.append(time.perf_counter() - started)
    decoder, total = (float(np.median(times[WARM_UP_STEPS:])) for times in (decoders, totals))
    return StepTime(rows, decoder, total)


def step_weights_bytes(decoder: StoredGraph) -> int:
    """Returns the bytes of the weights that a step reads; of a table it gathers only the rows that it needs."""
    read = {
        name
        for node in decoder.nodes
        for place, name in enumerate(node.inputs)
        if not (node.operator == "Gather" and place == 0)
    }
    return sum(weight.size_bytes for name, weight in decoder.weights.items() if name in read)


def copy_bandwidth() -> float:
    """Returns the bytes per second that this machine's memory is read with, measured by copying, which also writes."""
    source = np.ones(COPIED_BYTES, np.uint8)
    target = np.empty_like(source)
    return _best_bandwidth(lambda: np.copyto(target, source))


def gpu_copy_bandwidth() -> float:
    """Returns the same for the first GPU's memory."""
    import torch  # noqa: PLC0415 - who measures a CPU needs none

    source = torch.ones(COPIED_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)
        torch.cuda.synchronize()

    return _best_bandwidth(copy)


def _best_bandwidth(copy: Callable[[], object]) -> float:
    copy()
    times = []
    for _ in range(COPIES):
        started = time.perf_counter()
        copy()
        times.append(time.perf_counter() - started)
    return 2 * COPIED_BYTES / min(times)
