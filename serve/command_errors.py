"""Messages of the command line about wrong usage and failed system calls.

`suggest` names what the user may have meant. `explain_problem` names an invalid value by the option that was typed.
`describe_os_error` names the path of a failed system call and what to do.
"""

import argparse
import errno
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

# What to do, by the kind of a failed system call.
_REMEDIES = {
    errno.ENOENT: "check the path",
    errno.EACCES: "change its permissions, or run the command as its owner",
    errno.EPERM: "change its permissions, or run the command as its owner",
    errno.EISDIR: "expected a file",
    errno.ENOTDIR: "expected a folder",
    errno.EEXIST: "choose another path, or remove it",
    errno.ENOTEMPTY: "choose another path, or empty it",
    errno.EROFS: "choose a path on a disk that can be written",
    errno.ENOSPC: "free space, or choose a path on another disk",
    errno.EDQUOT: "free space, or choose a path on another disk",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ELOOP: "correct the links",
    errno.EMFILE: "raise the limit of open files with `ulimit -n`",
    errno.ENXIO: "expected a file",
    errno.EADDRINUSE: "choose another port, or stop the program that uses it",
    errno.EADDRNOTAVAIL: "choose an address of this machine",
}


def suggest(given: str, choices: Iterable[str]) -> str:
    """Returns the clause `, did you mean X?` for the most similar choice; empty if none is similar."""
    by_key = {_key(choice): choice for choice in choices}
    close = get_close_matches(_key(given), by_key, 1)
    return f", did you mean {by_key[close[0]]}?" if close else ""


def _key(text: str) -> str:
    """Returns a text without case and separators, which are mistyped most."""
    return re.sub(r"[-_ ]", "", text.casefold())


def suggest_options(parser: argparse.ArgumentParser, subcommands: Sequence[str]) -> None:
    """Makes a parser name similar options and subcommands when it refuses an argument."""
    refuse = parser.error
    label = "unrecognized arguments: "

    def error(message: str) -> NoReturn:
        unknown = message.partition(label)[2].split()
        for argument in unknown:
            name = argument.partition("=")[0]
            hint = suggest(name, _names(parser) if name.startswith("-") else subcommands)
            if hint:
                refuse(f"{message}{hint}")
        refuse(message)

    parser.error = error  # type: ignore[method-assign]


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
    return f"{_source(parser, problem['loc'], arguments, env_prefix)}: {problem['msg']}{hint}{given}"


def _source(
    parser: argparse.ArgumentParser, location: tuple[int | str, ...], arguments: Sequence[str], env_prefix: str
) -> str:
    # A tag of a union, as in architecture=transformer, and the index of an item are no part of the option's name.
    parts = [part for part in location if isinstance(part, str) and "=" not in part]
    name = ".".join(parts)
    action = next((each for each in parser._actions if each.dest == name), None)  # noqa: SLF001
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


def describe_os_error(error: OSError) -> str:
    """Returns the path of a failed system call, the problem and what to do, on one line."""
    problem = error.strerror or str(error)
    remedy = _REMEDIES.get(error.errno or 0)
    advice = "" if remedy is None else f": {remedy}"
    if error.filename is None:
        return f"{problem}{advice}"
    path = Path(os.fsdecode(error.filename))
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        # The part of the path that is no folder.
        file = next((part for part in (path, *path.parents) if part.is_file()), path)
        return f"{file}: is a file, expected a folder" if file.is_file() else f"{path}: {problem}{advice}"
    return f"{path}: {problem}{advice}"
