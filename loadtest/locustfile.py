"""Locust users of both interfaces, in a CLOSED LOOP.

A Locust user waits for its answer before it sends the next request. A stalled server gets fewer requests, so these
percentiles look better than what users would see. `dragoman load` measures latency; this file shows how many users the
server can serve. Settings are environment variables such as DRAGOMAN_LOCUST_GRPC_TARGET.

    locust -f loadtest/locustfile.py --host http://127.0.0.1:8000 RestUser GrpcUser
"""

import logging
import random
from typing import Any

import grpc
import grpc.experimental.gevent
from gevent import get_hub
from locust import FastHttpUser, User, constant, events, task
from pydantic import Field
from pydantic_settings import SettingsConfigDict

from dragoman.loadtest.protocols import PROTOCOLS
from dragoman.loadtest.scenario import LoadRequest, RequestKind, read_sentences
from dragoman.serve.clients.channel import open_channel
from dragoman.serve.clients.options import ConnectionOptions


class LocustSettings(ConnectionOptions):
    """Address of the gRPC interface, target language and connection settings."""

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_LOCUST_", frozen=True, extra="forbid", hide_input_in_errors=True
    )

    grpc_target: str = Field("127.0.0.1:8001", description="Address of the gRPC interface.")
    target_language: str = Field("", description="Target language; required by models with several.")


# Without it, gRPC's threads would block all users of the process.
grpc.experimental.gevent.init_gevent()
# Timers count from the loop's last look at the clock. Without this line the imports would shorten --run-time.
get_hub().loop.update_now()

SETTINGS = LocustSettings()
CONNECTION = SETTINGS.connection(timeout_seconds=30.0)
HEADERS = dict(CONNECTION.metadata)
KIND = RequestKind(target_language=SETTINGS.target_language)
REST, GRPC = PROTOCOLS["rest"], PROTOCOLS["grpc"]
SENTENCES = read_sentences(None)
# The name in all of Locust's tables and files.
LABEL = "translate (closed loop)"


@events.test_start.add_listener  # type: ignore[untyped-decorator]
def _warn_of_closed_loop(**_: object) -> None:
    logging.getLogger(__name__).warning("closed loop: these percentiles do not measure latency under load")


def _draw_request() -> LoadRequest:
    return LoadRequest((random.choice(SENTENCES),), KIND)


class RestUser(FastHttpUser):
    """A user that sends REST requests one at a time."""

    wait_time = constant(0)
    network_timeout = CONNECTION.timeout_seconds
    default_headers = HEADERS
    # Locust's default context accepts any certificate.
    ssl_context_factory = staticmethod(CONNECTION.ssl_context) if CONNECTION.encrypted else None

    @task
    def translate(self) -> None:
        """Translates a sentence."""
        self.client.post(REST.call, json=_draw_request().body(REST), name=LABEL)


class GrpcUser(User):
    """A user that sends gRPC requests one at a time on its own connection."""

    wait_time = constant(0)

    def __init__(self, *arguments: Any) -> None:
        """Opens the connection."""
        super().__init__(*arguments)
        self._channel = open_channel(SETTINGS.grpc_target, CONNECTION, [("grpc.use_local_subchannel_pool", 1)])
        self._call = self._channel.unary_unary(
            GRPC.call, GRPC.request_class.SerializeToString, GRPC.response_class.FromString
        )

    @task
    def translate(self) -> None:
        """Translates a sentence."""
        message = GRPC.request_class(**_draw_request().body(GRPC))
        with self.environment.events.request.measure("gRPC", LABEL) as measured:
            response = self._call(message, timeout=CONNECTION.timeout_seconds, metadata=CONNECTION.metadata)
            measured["response_length"] = response.ByteSize()

    def on_stop(self) -> None:
        """Closes the connection."""
        self._channel.close()
