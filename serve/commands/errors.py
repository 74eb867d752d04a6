"""Messages of the command line about wrong usage.

`suggest` names what the user may have meant. `explain_problem` names an invalid value by the option that was typed.
"""

import argparse
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import takewhile
from typing import Any, NoReturn


def suggest(given: str, choices: Iterable[str]) -> str:
    """Returns the clause `, did you mean X?` for the most similar choice; empty if none is similar."""
    by_key = {_key(choice): choice for choice in choices}
    close = get_close_matches(_key(given), by_key, 1)
    return f", did you mean {by_key[close[0]]}?" if close else ""


def _key(text: str) -> str:
    """Returns a text without case and separators, which are mistyped most."""
    return re.sub(r"[-_ ]", "", text.casefold())


def suggest_options(parser: argparse.ArgumentParser, arguments: Sequence[str], subcommands: Sequence[str]) -> None:
    """Makes a parser name similar options and subcommands when it refuses an argument.

    An unknown option comes before missing arguments, which the parser would name alone.
    """
    refuse = parser.error
    label = "unrecognized arguments: "

    def error(message: str) -> NoReturn:
        unknown = message.partition(label)[2].split()
        if not unknown and message.startswith("the following arguments are required: "):
            unknown = _unknown_options(parser, arguments)
            message = f"{label}{' '.join(unknown)}" if unknown else message
        for argument in unknown:
            name = argument.partition("=")[0]
            hint = suggest(name, _names(parser) if name.startswith("-") else subcommands)
            if hint:
                refuse(f"{message}{hint}")
        refuse(message)

    parser.error = error  # type: ignore[method-assign]


def _unknown_options(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> list[str]:
    known = parser._option_string_actions  # noqa: SLF001 - argparse has no public access
    names = (argument.partition("=")[0] for argument in takewhile("--".__ne__, arguments))
    return [name for name in names if name.startswith("--") and name not in known]


def _names(parser: argparse.ArgumentParser) -> list[str]:
    """Returns the options; a short name stands for a dotted one unless only that is similar."""
    options = parser._option_string_actions  # noqa: SLF001 - argparse has no public access
    return sorted(options, key=lambda name: "." not in name)


def explain_problem(
    parser: argparse.ArgumentParser, problem: Mapping[str, Any], arguments: Sequence[str], env_prefix: str
) -> str:
    """Returns one validation error with the option, argument or variable that has the value."""
    given = "" if problem["type"] == "missing" else f" (given: {problem['input']!r})"
    hint = ""
    if problem["type"] == "literal_error":
        hint = suggest(str(problem["input"]), re.findall(r"'([^']*)'", problem["ctx"]["expected"]))
    message = problem["msg"].removeprefix("Value error, ")
    return f"{_source(parser, problem['loc'], arguments, env_prefix)}: {message}{hint}{given}"


def _source(
    parser: argparse.ArgumentParser, location: tuple[int | str, ...], arguments: Sequence[str], env_prefix: str
) -> str:
    # A tag of a union, as in architecture=transformer, and the index of an item are no part of the option's name.
    parts = [part for part in location if isinstance(part, str) and "=" not in part]
    name = ".".join(parts)
    action = next((known for known in parser._actions if known.dest == name), None)  # noqa: SLF001
    options = [f"--{name.replace('_', '-')}"] if action is None else action.option_strings
    if not options:
        return str(getattr(action, "metavar", None) or name)
    typed = {argument.partition("=")[0] for argument in arguments}
    if given := [option for option in options if option in typed]:
        return given[0]
    variable = f"{env_prefix}{'__'.join(parts)}".upper()
    if variable in os.environ:
        return variable
    return next((option for option in options if "." not in option), options[0])
