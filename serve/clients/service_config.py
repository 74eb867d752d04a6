"""How gRPC itself behaves for a client: retries, which wait as the server says, and the choice among replicas.

The JSON of `service_config` works for clients of any language (`docs/clients.md`). Called by `serve.clients.channel`.
"""

from typing import Any

SERVICE = "dragoman.v1.TranslationService"


def service_config(*, retries: bool = True, balanced: bool = False, wait_for_ready: bool = False) -> dict[str, Any]:
    """Returns the service config of a channel (gRFC A2).

    Args:
        retries: whether what a later try can mend is tried again. Waits are up to 0.1, 0.3, 0.9 and 2 seconds, or what
            the server's pushback says (gRFC A6).
        balanced: whether calls take turns among all addresses of a name, those left out whose health says no (gRFC
            A17): servers that warm up or shut down.
        wait_for_ready: whether calls wait for a connection up to their deadline, where they would fail at once.
    """
    # A stream of requests is more than gRPC can begin again; its client sends again what has no answer.
    many = {"name": [{"service": SERVICE, "method": "TranslateMany"}], "waitForReady": wait_for_ready}
    method: dict[str, Any] = {"name": [{"service": SERVICE}], "waitForReady": wait_for_ready}
    if retries:
        method["retryPolicy"] = {
            "maxAttempts": 5,
            "initialBackoff": "0.1s",
            "maxBackoff": "2s",
            "backoffMultiplier": 3,
            "retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"],
        }
    config: dict[str, Any] = {"methodConfig": [many, method]}
    if balanced:
        config["loadBalancingConfig"] = [{"round_robin": {}}]
        config["healthCheckConfig"] = {"serviceName": SERVICE}
    return config
