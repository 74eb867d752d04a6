"""Commands that exit with an error, in this process."""

import pytest

from dragoman import command_line

Capture = pytest.CaptureFixture[str]


def refusal(command: str, *arguments: str) -> str:
    """Returns the single line with which a command exits."""
    with pytest.raises(SystemExit) as ended:
        command_line.run(command, list(arguments))
    message = ended.value.code
    assert isinstance(message, str)
    assert message.startswith(f"dragoman {command}: ")
    assert "\n" not in message
    return message
