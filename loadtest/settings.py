"""What the environment tells the users of Locust, which has options of its own: DRAGOMAN_LOCUST_GRPC_TARGET and so on.

Validated like the options of `dragoman load`, and read once, by the locustfile.
"""

from typing import Self

from pydantic import Field, ValidationError
from pydantic_settings import SettingsConfigDict

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
