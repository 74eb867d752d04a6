"""What the commands on the database of the service share: they work whether a server runs or not."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from dragoman.model.errors import first_problem
from dragoman.serve.errors import StorageFullError
from dragoman.serve.host.state import State, StateError
from dragoman.serve.settings import StateSettings

ENVIRONMENT = "DRAGOMAN_"


class StateCommand(StateSettings, BaseSettings):
    """The settings of every command; `GROUP` names the commands, and messages of `PROBLEMS` end one."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid")

    GROUP: ClassVar[str]
    PROBLEMS: ClassVar[tuple[type[Exception], ...]] = (StateError, StorageFullError)

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *_: Any, **sources: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Returns the flags, then the environment of the server for the database only."""
        names = {name: f"{ENVIRONMENT}{name.upper()}" for name in StateSettings.model_fields}
        given: dict[str, Any] = {name: os.environ[label] for name, label in names.items() if label in os.environ}
        return sources["init_settings"], InitSettingsSource(settings_cls, given)

    @contextmanager
    def open(self) -> Iterator[State]:
        """Yields the database; ends the command with one line if something is wrong."""
        try:
            state = self.open_state()
            if state is None:
                raise SystemExit(f"dragoman {self.GROUP}: expected --state-dir, the folder of the server")
            try:
                yield state
            finally:
                state.close()
        except ValidationError as error:
            raise SystemExit(f"dragoman {self.GROUP}: {first_problem(error)}") from error
        except self.PROBLEMS as error:
            raise SystemExit(f"dragoman {self.GROUP}: {error}") from error
