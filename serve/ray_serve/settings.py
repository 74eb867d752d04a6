"""The settings of a deployment of Ray Serve: those of `dragoman serve` that are not Ray's, and those of its replicas.

They are the `args` of the application in Ray Serve's configuration; environment and `config` count as ever. Read by
`serve.ray_serve.application` and, in each replica, by the service.

How many replicas the load needs: the rule of the autoscaler for Kubernetes, as a policy of Ray Serve.

Ray Serve counts requests, but a request may be one text or fifty, and a text one row or, with a beam, several. So
replicas report what their engines have to do, and Ray's controller asks this module. It gets the module by value, so
nothing here is imported from the rest.
"""

from collections.abc import Iterable
from typing import Any, Self

from pydantic import Field, model_validator

from serve.settings import ServeSettings

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


# What Ray Serve's proxies do instead, and what would reach one replica of many.
BROUGHT_BY_RAY = frozenset(
    {
        "host",
        "http_port",
        "grpc_port",
        "tls_certificate_file",
        "tls_key_file",
        "tls_client_ca_file",
        "grpc_keepalive_seconds",
        "grpc_keepalive_timeout_seconds",
        "grpc_min_ping_interval_seconds",
        "grpc_max_connection_age_seconds",
        "grpc_max_connection_age_grace_seconds",
        "grpc_max_calls",
        "stream_unanswered_texts",
        "admin_key",
        "admin_key_file",
        "lame_duck_seconds",
    }
)


class RaySettings(ServeSettings):
    """How each replica serves, and how many there are."""

    cpus_per_replica: int = Field(
        1,
        ge=1,
        description="CPUs that Ray keeps for a replica, and that its engines share: Ray confines no process to what it "
        "keeps for it, so that a replica which looked for itself would take the whole machine.",
    )
    min_replicas: int = Field(1, ge=1, description="Replicas that there are at any time.")
    max_replicas: int = Field(10, ge=1, description="The most replicas that load brings.")
    look_back_seconds: float = Field(
        30.0,
        gt=0,
        allow_inf_nan=False,
        description="The load is averaged over so long; replicas tell it three times in that.",
    )
    upscale_delay_seconds: float = Field(
        10.0, ge=0, allow_inf_nan=False, description="How long there must be too few replicas before one is added."
    )
    downscale_delay_seconds: float = Field(
        300.0, ge=0, allow_inf_nan=False, description="How long there must be too many before one is taken away."
    )
    health_check_seconds: float = Field(
        10.0,
        gt=0,
        allow_inf_nan=False,
        description="How often a replica is asked whether it is well, and how long it may take to answer. After three "
        "bad answers in a row Ray starts another one in its place.",
    )
    max_start_attempts: int = Field(
        3, ge=1, description="How often a replica that does not become ready is tried before the deployment has failed."
    )

    @property
    def cpus(self) -> int:
        """CPUs that the engines of a replica share."""
        return self.cpus_per_replica

    @model_validator(mode="after")
    def check_whose(self) -> Self:
        """Refuses settings that would have no effect.

        Raises:
            ValueError: naming them.
        """
        idle = sorted(BROUGHT_BY_RAY & self.model_fields_set)
        if idle:
            raise ValueError(f"{', '.join(idle)}: expected none, since Ray Serve brings its own")
        if self.max_replicas < self.min_replicas:
            raise ValueError(f"max_replicas: {self.max_replicas}, expected at least min_replicas, {self.min_replicas}")
        return self
