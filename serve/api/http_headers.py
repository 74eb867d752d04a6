"""Headers of REST answers that several interfaces write."""

from serve.translation.response import Timings

REQUEST_ID_HEADER = "x-request-id"
TIMINGS_HEADER = "server-timing"


def timings_header(timings: Timings) -> dict[str, str]:
    """Returns where the time of a request went, in milliseconds, as W3C's Server Timing writes it."""
    seconds = {name.removesuffix("_seconds"): value for name, value in timings.by_name.items()}
    return {TIMINGS_HEADER: ", ".join(f"{name};dur={1000 * value:.3f}" for name, value in seconds.items())}
