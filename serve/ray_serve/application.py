"""The application that `serve run` of Ray Serve starts: `serve.ray_serve.application:build`.

The only module that imports Ray, and only when it is called, so that everything else can be imported without the extra.
"""

from typing import Any

from serve.ray_serve.replica import Replica
from serve.ray_serve.settings import RaySettings, count_replicas

# Far more than a replica's slots and queue hold: what is too much is refused by the queue, at once and with the time to
# come back, and does not wait unseen in Ray Serve.
MAX_ONGOING_REQUESTS = 10_000
# What stopping the models takes after the last request, and Ray Serve's own wait before it looks whether there is one.
STOP_SECONDS = 10.0
# A new version starts in so many replicas more, at least one, and only then an old one stops.
SURGE_PERCENT = 25
REPORTS_PER_LOOK_BACK = 3


def build(settings: RaySettings) -> Any:
    """Returns the application, a `ray.serve.Application`.

    Args:
        settings: made by Ray Serve from the `args` in its configuration.
    """
    from ray import serve  # noqa: PLC0415 - an extra

    return serve.deployment(serve.ingress()(Replica), **deployment_options(settings)).bind(settings)


def deployment_options(settings: RaySettings) -> dict[str, Any]:
    """Returns the options of the deployment."""
    return {
        "name": "dragoman",
        "ray_actor_options": {"num_cpus": settings.cpus_per_replica},
        "max_ongoing_requests": MAX_ONGOING_REQUESTS,
        "autoscaling_config": {
            "min_replicas": settings.min_replicas,
            "max_replicas": settings.max_replicas,
            "look_back_period_s": settings.look_back_seconds,
            "metrics_interval_s": settings.look_back_seconds / REPORTS_PER_LOOK_BACK,
            "upscale_delay_s": settings.upscale_delay_seconds,
            "downscale_delay_s": settings.downscale_delay_seconds,
            "policy": {"policy_function": f"{count_replicas.__module__}.{count_replicas.__qualname__}"},
        },
        "health_check_period_s": settings.health_check_seconds,
        "health_check_timeout_s": settings.health_check_seconds,
        "graceful_shutdown_timeout_s": settings.drain_seconds + STOP_SECONDS,
        "max_constructor_retry_count": settings.max_start_attempts,
        "max_surge_percent": SURGE_PERCENT,
    }
