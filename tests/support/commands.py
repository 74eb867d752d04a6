"""Commands that exit with an error, in this process."""

from collections.abc import Callable

import pytest

from dragoman import command_line

Capture = pytest.CaptureFixture[str]


def refusal(command: str, *arguments: str) -> str:
    """Returns the single line with which a command exits."""
    return refusal_of(command, lambda: command_line.run(command, list(arguments)))


def refusal_of(command: str, start_it: Callable[[], object]) -> str:
    """Returns the single line with which a part of a command exits."""
    with pytest.raises(SystemExit) as ended:
        start_it()
    message = str(ended.value)
    assert message.startswith(f"dragoman {command}: ")
    assert "\n" not in message
    return message
