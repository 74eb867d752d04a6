"""What the commands on the database of the service share: they work whether a server runs or not."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from dragoman.model.errors import UsageError, UserError, first_problem
from dragoman.serve.errors import ServiceError
from dragoman.serve.host.state import State, StateError
from dragoman.serve.keys.store import KeyExistsError, NoSuchKeyError
from dragoman.serve.settings import StateSettings

ENVIRONMENT = "DRAGOMAN_"
# Their messages end a command.
_PROBLEMS = (StateError, ServiceError, KeyExistsError, NoSuchKeyError, ValueError)


class StateCommand(StateSettings, BaseSettings):
    """The settings of every command."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid")

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
        """Yields the database; raises UserError if there is none, or the block fails for a reason in `_PROBLEMS`."""
        try:
            state = self.open_state(cache_bytes=64 << 20)  # of the indexes that an import changes
            if state is None:
                raise UsageError("expected --state-dir, the folder of the server")
            try:
                yield state
            finally:
                state.close()
        except ValidationError as error:
            raise UserError(first_problem(error)) from error
        except _PROBLEMS as error:
            raise UserError(str(error)) from error
