"""Errors of trained and imported models, and the wording of errors of files and values. Imports no torch."""

import errno
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError  # the help of all commands needs none of it

# Exit statuses of commands, which docs/commands.md lists; the last two are those of shells after the signal.
WRONG_USAGE, INTERRUPTED, TERMINATED = 2, 128 + signal.SIGINT, 128 + signal.SIGTERM
# What to do, by the kind of a failed system call.
_ROWS = (line.split("\t") for line in Path(__file__).with_name("remedies.tsv").read_text("utf-8").splitlines())
_REMEDIES: dict[int, str] = {getattr(errno, name): remedy for name, remedy in _ROWS}


class UserError(Exception):
    """A command cannot do what was requested. The message names a field or a file, and what was expected."""


class UsageError(UserError):
    """The arguments of a command are wrong in themselves: its exit status is 2."""


class CorpusError(UserError):
    """The data cannot be read; the message has the specification or file and what was expected."""


class RunError(UserError):
    """The folder is not a run or lacks what the caller needs; the message has the reason."""


def ended(message: str, status: int) -> SystemExit:
    """Prints why a process ends, and returns its end with a status other than 1, which Python gives to a message."""
    print(message, file=sys.stderr)
    end = SystemExit(message)
    end.code = status
    return end


def first_problem(error: "ValidationError") -> str:
    """Returns the first of `problems_of`."""
    return problems_of(error)[0]


def problems_of(error: "ValidationError") -> list[str]:
    """Returns each validation error as `field: problem`; an error of the whole record has no field."""
    problems = ((".".join(map(str, item["loc"])), item["msg"].removeprefix("Value error, ")) for item in error.errors())
    return [": ".join(filter(None, problem)) for problem in problems]


def reason_of(error: BaseException) -> str:
    """Returns why a file cannot be read or written, on one line without its path, and what to do."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if not isinstance(error, OSError) or error.strerror is None:
        return " ".join(str(error).split())
    remedy = _REMEDIES.get(error.errno or 0)
    return error.strerror if remedy is None else f"{error.strerror}: {remedy}"


def describe_os_error(error: OSError) -> str:
    """Returns the path of a failed system call, the reason and what to do, on one line."""
    if error.filename is None:
        return reason_of(error)
    path = Path(os.fsdecode(error.filename))
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        # The part of the path that is no folder.
        file = next((part for part in (path, *path.parents) if part.is_file()), None)
        if file is not None:
            return f"{file}: is a file, expected a folder"
    return f"{path}: {reason_of(error)}"
