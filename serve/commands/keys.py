"""The commands `dragoman keys`."""

import time

from pydantic import Field
from pydantic_settings import CliPositionalArg, SettingsConfigDict

from dragoman.serve.commands.listing import Columns, ListingCommand, count
from dragoman.serve.commands.state import StateCommand
from dragoman.serve.keys.key import KeyLimits, describe_key, period_start
from dragoman.serve.keys.store import KeyStore
from dragoman.serve.keys.usage import UsageStore, describe_usage

# What the list of keys shows of them.
COLUMNS: Columns = {
    **dict.fromkeys(("name", "characters", "period", "requests_per_minute", "concurrency", "priority"), str),
    "characters": count,
    "models": lambda names: ", ".join(names) or "all",
    "revoked": str,
}


class CreateKeyCommand(KeyLimits, StateCommand):
    """Create an API key and print it. Nothing else ever shows it again: only its digest is stored."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid")

    name: CliPositionalArg[str] = Field(description="Name of the key, for people, logs and metrics")

    def cli_cmd(self) -> None:
        """Creates the key."""
        with self.open() as state:
            limits = KeyLimits.model_validate(self.model_dump(include=set(KeyLimits.model_fields)))
            print(KeyStore(state).create(self.name, limits)[1])


class ListKeysCommand(StateCommand, ListingCommand):
    """List the API keys with their limits, revoked ones included."""

    def cli_cmd(self) -> None:
        """Prints a row per key."""
        with self.open() as state:
            rows = map(describe_key, KeyStore(state).list())
        self.print_rows(rows, COLUMNS, "no key")


class ShowKeyCommand(StateCommand, ListingCommand):
    """Show an API key, without its secret."""

    name: CliPositionalArg[str] = Field(description="Name of the key")

    def cli_cmd(self) -> None:
        """Prints a line per field."""
        with self.open() as state:
            key = KeyStore(state).get(self.name)
        self.print_fields(describe_key(key))


class ChangeKeyCommand(KeyLimits, StateCommand):
    """Change limits of an API key; those that are not named stay. Servers apply them within seconds.

    `--characters None` removes a limit.
    """

    model_config = SettingsConfigDict(frozen=True, extra="forbid")

    name: CliPositionalArg[str] = Field(description="Name of the key")

    def cli_cmd(self) -> None:
        """Changes the given limits."""
        given = self.model_fields_set & KeyLimits.model_fields.keys()
        with self.open() as state:
            KeyStore(state).change(self.name, self.model_dump(include=given))


class RevokeKeyCommand(StateCommand):
    """Revoke an API key for ever. Servers refuse it within seconds; its name stays taken."""

    name: CliPositionalArg[str] = Field(description="Name of the key")

    def cli_cmd(self) -> None:
        """Revokes the key."""
        with self.open() as state:
            KeyStore(state).revoke(self.name)


class KeyUsageCommand(StateCommand, ListingCommand):
    """Show how many characters an API key has used in the current period."""

    name: CliPositionalArg[str] = Field(description="Name of the key")

    def cli_cmd(self) -> None:
        """Prints a line per field."""
        with self.open() as state:
            key = KeyStore(state).get(self.name)
            start = period_start(key.limits.period, time.time())
            used = UsageStore(state, "").used(key.id, start)
        self.print_fields(describe_usage(key, used, start))
