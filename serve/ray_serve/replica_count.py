"""How many replicas the load needs: the rule of the autoscaler for Kubernetes, as a policy of Ray Serve.

Ray Serve counts requests, but a request may be one text or fifty, and a text one row or, with a beam, several. So
replicas report what their engines have to do, and Ray's controller asks this module. It gets the module by value, so
nothing here is imported from the rest.
"""

from collections.abc import Iterable
from typing import Any

# What a replica reports, under the names of its gauges; `slots` is what it could run at once.
ROWS_RUNNING = "rows_running"
SEQUENCES_WAITING = "sequences_waiting"
SLOTS = "slots"

# Three quarters of the slots: a replica is added before all of them are taken.
WANTED_SHARE = 0.75
WANTED_WAITING = 8


def count_replicas(context: Any) -> tuple[float, dict[str, Any]]:
    """Returns how many replicas there should be, and what to remember until the next time, which is nothing.

    Limits, delays and rounding up are Ray's.

    Args:
        context: `ray.serve.config.AutoscalingContext`, with means over its look-back period for each replica.
    """
    reported: dict[str, dict[Any, float]] = context.aggregated_metrics or {}
    slots = reported.get(SLOTS, {}).values()
    if not slots:
        # Nobody has reported yet, which says nothing about the load.
        return context.target_num_replicas, {}
    wanted_rows = WANTED_SHARE * sum(slots) / len(slots)
    return max(_total(reported, ROWS_RUNNING) / wanted_rows, _total(reported, SEQUENCES_WAITING) / WANTED_WAITING), {}


def _total(reported: dict[str, dict[Any, float]], name: str) -> float:
    values: Iterable[float] = reported.get(name, {}).values()
    return sum(values)
