"""Runs a command: parses its arguments with pydantic-settings, and explains what it cannot do in one line."""

import gc
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module

from pydantic import ValidationError
from pydantic_settings import BaseSettings, CliApp, CliSettingsSource, SettingsError

from dragoman.model.errors import WRONG_USAGE, UsageError, UserError, describe_os_error, ended
from dragoman.serve.commands.errors import explain_problem, suggest_options
from dragoman.serve.commands.help import HelpFormatter, arrange_help


@contextmanager
def quick_imports() -> Iterator[None]:
    """Imports without collections, which find no garbage, and structlog without rich, since tracebacks are plain."""
    gc.disable()
    try:
        if "rich" not in sys.modules:
            sys.modules["rich"] = None  # type: ignore[assignment]
            import_module("structlog")
            del sys.modules["rich"]
        yield
    finally:
        gc.enable()


def run_command(name: str, command: type[BaseSettings], arguments: list[str], subcommands: Sequence[str]) -> None:
    """Parses the arguments of a command and runs it; `subcommands` begin with its name.

    Raises:
        SystemExit: with status 2 if an argument is invalid, 1 after another `UserError` or an error of a file.
    """
    try:
        _run(name, command, arguments, subcommands)
        if sys.stdout is not None:  # a process without standard streams has none
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except UserError as error:
        message = f"dragoman {name}: {error}"
        raise (ended(message, WRONG_USAGE) if isinstance(error, UsageError) else SystemExit(message)) from error
    except OSError as error:
        raise SystemExit(f"dragoman {name}: {describe_os_error(error)}") from error


def make_parser(name: str, command: type[BaseSettings]) -> CliSettingsSource[ArgumentParser]:
    """Returns the parser of a command with its help."""
    parser: CliSettingsSource[ArgumentParser] = CliSettingsSource(
        command,
        cli_prog_name=f"dragoman {name}",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
        formatter_class=HelpFormatter,
    )
    arrange_help(parser.root_parser, command)
    return parser


def _run(name: str, command: type[BaseSettings], arguments: list[str], subcommands: Sequence[str]) -> None:
    parser = make_parser(name, command)
    suggest_options(parser.root_parser, arguments, subcommands)
    env_prefix = command.model_config.get("env_prefix", "")
    try:
        CliApp.run(command, cli_args=arguments, cli_settings_source=parser)
    except ValidationError as error:
        for problem in error.errors():
            explained = explain_problem(parser.root_parser, dict(problem), arguments, env_prefix)
            print(f"dragoman {name}: {explained}", file=sys.stderr)
        raise SystemExit(WRONG_USAGE) from error
    except SettingsError as error:  # a list or mapping in the environment is not JSON
        variable = env_prefix + str(error).split('"')[1]  # pydantic quotes the name of the field
        print(f"dragoman {name}: {variable.upper()}: expected JSON", file=sys.stderr)
        raise SystemExit(WRONG_USAGE) from error
