"""Users of both interfaces for Locust, and a load that grows in steps: journeys of users, in a CLOSED LOOP.

A user of Locust waits for its answer before it asks again, so a server that stalls is asked less and its percentiles
look better than what users would feel. `dragoman load` measures latency; this shows how many users are served.

    locust -f loadtest/locustfile.py --host http://127.0.0.1:8000 RestUser GrpcUser

The environment tells the rest (`loadtest.locustfile`).

What the environment tells the users of Locust, which has options of its own: DRAGOMAN_LOCUST_GRPC_TARGET and so on.

Validated like the options of `dragoman load`, and read once, by the locustfile.
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
    """Where the gRPC interface is, how both are reached, and how the load grows."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT, frozen=True, extra="forbid")

    grpc_target: str = Field("127.0.0.1:8001", description="Host and port of the gRPC interface.")
    target_language: str = Field("", description="Needed by models that translate into several languages.")
    step_users: int = Field(4, ge=1, description="Users that come at every step.")
    step_seconds: float = Field(30.0, gt=0, description="How long a step is.")
    steps: int = Field(8, ge=1, description="Steps until the test is over.")

    @classmethod
    def read(cls) -> Self:
        """Returns what the environment says.

        Raises:
            SystemExit: if it cannot be used; a line for each variable, none of which shows the key.
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


# gRPC's threads would block all users of the process.
grpc.experimental.gevent.init_gevent()

SETTINGS = LocustSettings.read()
CONNECTION = SETTINGS.connection(timeout_seconds=30.0)
HEADERS = dict(CONNECTION.metadata)
# In every table and file that Locust makes.
LABEL = "translate (closed loop)"


@events.test_start.add_listener  # type: ignore[untyped-decorator]
def _say_what_this_is(**_: object) -> None:
    logging.getLogger(__name__).warning("closed loop: these percentiles are no measure of latency under load")


class RestUser(FastHttpUser):
    """Asks over REST, one request after the other."""

    wait_time = constant(0)
    network_timeout = CONNECTION.timeout_seconds
    default_headers = HEADERS
    # Without one of its own, Locust believes any certificate.
    ssl_context_factory = staticmethod(CONNECTION.ssl_context) if CONNECTION.encrypted else None

    @task
    def translate(self) -> None:
        """Has a sentence translated."""
        body = {"text": random.choice(DEFAULT_SENTENCES), "target_language": SETTINGS.target_language}
        self.client.post(TRANSLATE_PATH, json=body, name=LABEL)


class GrpcUser(User):
    """Asks over gRPC, one request after the other, on a connection of its own."""

    wait_time = constant(0)

    def __init__(self, *arguments: Any) -> None:
        """Opens the connection."""
        super().__init__(*arguments)
        self._channel = open_channel(SETTINGS.grpc_target, CONNECTION, [("grpc.use_local_subchannel_pool", 1)])
        self._stub = TranslationServiceStub(self._channel)

    @task
    def translate(self) -> None:
        """Has a sentence translated."""
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
    """So many users more after every step, until the last step is over."""

    def tick(self) -> tuple[int, float] | None:
        """Returns how many users there are now, and how many may come in a second; None: it is over."""
        run_seconds: float = self.get_run_time()  # type: ignore[no-untyped-call]
        step = int(run_seconds / SETTINGS.step_seconds) + 1
        return None if step > SETTINGS.steps else (step * SETTINGS.step_users, float(SETTINGS.step_users))
