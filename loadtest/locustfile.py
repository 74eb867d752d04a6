"""Locust users of both interfaces, and a load that grows in steps, in a CLOSED LOOP.

A Locust user waits for its answer before it sends the next request. A stalled server gets fewer requests, so these
percentiles look better than what users would see. `dragoman load` measures latency; this file shows how many users the
server can serve. Settings are environment variables such as DRAGOMAN_LOCUST_GRPC_TARGET.

    locust -f loadtest/locustfile.py --host http://127.0.0.1:8000 RestUser GrpcUser
"""

import logging
import random
import time
from typing import Any, Self

import grpc
import grpc.experimental.gevent
from locust import FastHttpUser, LoadTestShape, User, constant, events, task
from pydantic import Field, ValidationError
from pydantic_settings import SettingsConfigDict

from loadtest.clients import TRANSLATE_PATH
from loadtest.scenario import DEFAULT_SENTENCES
from protos.translation_pb2 import TranslateRequest
from protos.translation_pb2_grpc import TranslationServiceStub
from serve.clients.channel import open_channel
from serve.clients.options import ConnectionOptions
from serve.files import FileError

ENVIRONMENT = "DRAGOMAN_LOCUST_"


class LocustSettings(ConnectionOptions):
    """Address of the gRPC interface, connection settings, and the growth of the load."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT, frozen=True, extra="forbid")

    grpc_target: str = Field("127.0.0.1:8001", description="Address of the gRPC interface.")
    target_language: str = Field("", description="Target language; required by models with several.")
    step_users: int = Field(4, ge=1, description="Users added per step.")
    step_seconds: float = Field(30.0, gt=0, description="Length of a step.")
    steps: int = Field(8, ge=1, description="Number of steps.")

    @classmethod
    def read(cls) -> Self:
        """Reads the settings from the environment.

        Raises:
            SystemExit: with one line per invalid variable; the message never shows the key.
        """
        try:
            settings = cls()
            settings.connection()
        except ValidationError as error:
            raise SystemExit("\n".join(_line(dict(each)) for each in error.errors())) from error
        except FileError as error:
            raise SystemExit(f"{ENVIRONMENT}: {error}") from error
        return settings


def _line(error: dict[str, object]) -> str:
    (name, *_) = error["loc"] if isinstance(error["loc"], tuple) else ("",)
    return f"{ENVIRONMENT}{str(name).upper()}: {error['input']!r}: {error['msg']}"


# Without it, gRPC's threads would block all users of the process.
grpc.experimental.gevent.init_gevent()

SETTINGS = LocustSettings.read()
CONNECTION = SETTINGS.connection(timeout_seconds=30.0)
HEADERS = dict(CONNECTION.metadata)
# The name in all of Locust's tables and files.
LABEL = "translate (closed loop)"


@events.test_start.add_listener  # type: ignore[untyped-decorator]
def _warn_of_closed_loop(**_: object) -> None:
    logging.getLogger(__name__).warning("closed loop: these percentiles do not measure latency under load")


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
        body = {"text": random.choice(DEFAULT_SENTENCES), "target_language": SETTINGS.target_language}
        self.client.post(TRANSLATE_PATH, json=body, name=LABEL)


class GrpcUser(User):
    """A user that sends gRPC requests one at a time on its own connection."""

    wait_time = constant(0)

    def __init__(self, *arguments: Any) -> None:
        """Opens the connection."""
        super().__init__(*arguments)
        self._channel = open_channel(SETTINGS.grpc_target, CONNECTION, [("grpc.use_local_subchannel_pool", 1)])
        self._stub = TranslationServiceStub(self._channel)

    @task
    def translate(self) -> None:
        """Translates a sentence."""
        request = TranslateRequest(text=[random.choice(DEFAULT_SENTENCES)], target_language=SETTINGS.target_language)
        started_seconds = time.perf_counter()
        failure: grpc.RpcError | None = None
        answer_bytes = 0
        try:
            answer_bytes = self._stub.Translate(
                request, timeout=CONNECTION.timeout_seconds, metadata=CONNECTION.metadata
            ).ByteSize()
        except grpc.RpcError as error:
            failure = error
        self.environment.events.request.fire(
            request_type="gRPC",
            name=LABEL,
            response_time=1000 * (time.perf_counter() - started_seconds),
            response_length=answer_bytes,
            exception=failure,
            context={},
        )

    def on_stop(self) -> None:
        """Closes the connection."""
        self._channel.close()


class Steps(LoadTestShape):
    """Adds users in steps until the last step is over."""

    def tick(self) -> tuple[int, float] | None:
        """Returns the current number of users and the spawn rate per second; None at the end."""
        run_seconds: float = self.get_run_time()  # type: ignore[no-untyped-call]
        step = int(run_seconds / SETTINGS.step_seconds) + 1
        return None if step > SETTINGS.steps else (step * SETTINGS.step_users, float(SETTINGS.step_users))
