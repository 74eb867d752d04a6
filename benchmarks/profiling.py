"""Where ONNX Runtime's time goes inside a graph, read from the file that its profiler writes.

The format is that of Chrome's trace events: a list of objects, times in microseconds. Called by
`benchmarks.step_profile`; knows nothing of graphs.
"""

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

# What the profiler appends to the name of a node.
KERNEL_SUFFIX = "_kernel_time"
RUN, EXECUTION = "model_run", "SequentialExecutor::Execute"


@dataclass(frozen=True, slots=True)
class NodeTime:
    """A node of the graph.

    Attributes:
        name: of the node.
        operator: its type.
        output: the shape of its first output in the largest run, as in `32 x 4000`.
        microseconds: of a run, the mean of the middle half of all runs: the other processes of a machine do not count.
        share: of the time of all nodes.
    """

    name: str
    operator: str
    output: str
    microseconds: float
    share: float


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """All nodes of one type.

    Attributes:
        operator: the type.
        nodes: how many there are.
        microseconds: of a run, all nodes together.
        share: of the time of all nodes.
    """

    operator: str
    nodes: int
    microseconds: float
    share: float


@dataclass(frozen=True, slots=True)
class GraphTimes:
    """The nodes of a graph.

    Attributes:
        nodes: the heaviest first.
        between_microseconds: the time of a run that no node took, also of the middle half; most of it is the
            profiler's own.
    """

    nodes: list[NodeTime]
    between_microseconds: float

    @classmethod
    def read(cls, path: Path, runs: int) -> Self:
        """Reads a profile.

        Args:
            path: of the file.
            runs: so many count, the last ones.
        """
        events: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        start = [event["ts"] for event in events if event["name"] == RUN][-runs]
        counted = [event for event in events if event.get("ts", 0) >= start and event["ph"] == "X"]
        nodes = _nodes([event for event in counted if event["name"].endswith(KERNEL_SUFFIX)])
        inside = middle_mean([event["dur"] for event in counted if event["name"] == EXECUTION])
        return cls(nodes, inside - sum(node.microseconds for node in nodes))

    @property
    def operators(self) -> list[OperatorTime]:
        """The types of nodes, the heaviest first."""
        nodes = defaultdict[str, list[NodeTime]](list)
        for node in self.nodes:
            nodes[node.operator].append(node)
        return sorted(
            (
                OperatorTime(
                    operator,
                    len(alike),
                    sum(node.microseconds for node in alike),
                    sum(node.share for node in alike),
                )
                for operator, alike in nodes.items()
            ),
            key=lambda each: -each.microseconds,
        )


def middle_mean(times: Sequence[float]) -> float:
    """Returns the mean of the middle half of some times, at least one: finer than their median, which is whole."""
    ordered, outside = sorted(times), len(times) // 4
    return statistics.mean(ordered[outside : len(ordered) - outside])


def _nodes(events: Iterable[dict[str, Any]]) -> list[NodeTime]:
    all_times = defaultdict[str, list[float]](list)
    largest: dict[str, dict[str, Any]] = {}
    for event in events:
        index = event["args"]["node_index"]  # names may be empty
        all_times[index].append(event["dur"])
        largest[index] = max(largest.get(index, event), event, key=_output_size)
    times = {index: middle_mean(some) for index, some in all_times.items()}
    everything = sum(times.values())
    nodes = [
        NodeTime(
            event["name"].removesuffix(KERNEL_SUFFIX),
            event["args"]["op_name"],
            " x ".join(map(str, _output_shape(event))),
            times[index],
            times[index] / everything,
        )
        for index, event in largest.items()
    ]
    return sorted(nodes, key=lambda node: -node.microseconds)


def _output_size(event: dict[str, Any]) -> int:
    return math.prod(_output_shape(event))


def _output_shape(event: dict[str, Any]) -> list[int]:
    """Returns the shape of the first output, of which the profiler tells one type with its sizes."""
    outputs: list[dict[str, list[int]]] = event["args"]["output_type_shape"]
    return [size for sizes in outputs[:1] for each in sizes.values() for size in each]
