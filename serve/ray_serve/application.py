"""The application of Ray Serve: `serve run dragoman.serve.ray_serve.application:build`.

Only `build` imports Ray, so that the package can be imported without the extra.
"""

from typing import Any

from dragoman.serve.ray_serve.replica import Replica
from dragoman.serve.ray_serve.settings import RaySettings, count_replicas

# More than the slots and queue of a replica hold: the replica rejects the excess at once with a time to retry. In Ray
# Serve's own queue it would wait unseen.
MAX_ONGOING_REQUESTS = 10_000
# Time to stop the models after the last request, and of Ray Serve's own wait before it.
STOP_SECONDS = 10.0
# Additional replicas of a new version, at least one, before an old replica stops.
SURGE_PERCENT = 25
REPORTS_PER_LOOK_BACK = 3


def build(settings: RaySettings) -> Any:
    """Returns the application, a `ray.serve.Application`; `settings`: the `args` of Ray Serve's configuration."""
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
