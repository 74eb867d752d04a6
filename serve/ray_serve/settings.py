"""Settings of a deployment of Ray Serve, and its autoscaling policy.

The settings are the `args` of the application in Ray Serve's configuration; environment and `config` apply as usual.
The policy is that of the Kubernetes autoscaler. It uses rows, not requests: a request may have 50 texts, and a beam
several rows. Ray's controller gets `count_replicas` by value, so the function needs nothing from other modules.
"""

from collections.abc import Iterable
from typing import Any, Self

from pydantic import Field, FiniteFloat, model_validator

from dragoman.serve.host.tables import described, read_table
from dragoman.serve.settings import ServeSettings

# Names of the reported values, as of the gauges.
ROWS_RUNNING = "rows_running"
SEQUENCES_WAITING = "sequences_waiting"
SLOTS = "slots"

# Below 1, so that a replica is added before all slots are taken.
WANTED_SHARE = 0.75
WANTED_WAITING = 8


def count_replicas(context: Any) -> tuple[float, dict[str, Any]]:
    """Returns the wanted number of replicas, before Ray's limits and rounding, and an empty state."""
    reported: dict[str, dict[Any, float]] = context.aggregated_metrics or {}
    slots = reported.get(SLOTS, {}).values()
    if not slots:
        # No replica has reported yet: the load is unknown.
        return context.target_num_replicas, {}
    wanted_rows = WANTED_SHARE * sum(slots) / len(slots)
    return max(_total(reported, ROWS_RUNNING) / wanted_rows, _total(reported, SEQUENCES_WAITING) / WANTED_WAITING), {}


def _total(reported: dict[str, dict[Any, float]], name: str) -> float:
    values: Iterable[float] = reported.get(name, {}).values()
    return sum(values)


# Settings that Ray Serve's proxies replace, or that would affect one replica of many.
BROUGHT_BY_RAY = frozenset(read_table(__file__, "replaced.yaml"))


@described(__file__)
class RaySettings(ServeSettings):
    """Settings of each replica and of their number."""

    cpus_per_replica: int = Field(1, ge=1)
    min_replicas: int = Field(1, ge=1)
    max_replicas: int = Field(10, ge=1)
    look_back_seconds: FiniteFloat = Field(30.0, gt=0)
    upscale_delay_seconds: FiniteFloat = Field(10.0, ge=0)
    downscale_delay_seconds: FiniteFloat = Field(300.0, ge=0)
    health_check_seconds: FiniteFloat = Field(10.0, gt=0)
    max_start_attempts: int = Field(3, ge=1)

    @property
    def cpus(self) -> int:
        """CPUs for all engines of a replica."""
        return self.cpus_per_replica

    @model_validator(mode="after")
    def check_whose(self) -> Self:
        """Rejects settings without effect; raises ValueError with their names."""
        idle = sorted(BROUGHT_BY_RAY & self.model_fields_set)
        if idle:
            raise ValueError(f"{', '.join(idle)}: not supported: Ray Serve replaces these settings")
        if self.max_replicas < self.min_replicas:
            raise ValueError(f"max_replicas: {self.max_replicas}, expected at least min_replicas, {self.min_replicas}")
        return self
