"""The native library of this installation: where it is, what it computes with, or why it is not used.

Graphs hold their operators also as functions of standard operators, so that bundles run without the library, slower.
"""

import ctypes
import os
import platform
from pathlib import Path

# Names an instruction set, or `fallback` for no library.
INSTRUCTIONS_VARIABLE = "DRAGOMAN_INSTRUCTIONS"
FALLBACK = "fallback"
_LIBRARY = Path(__file__).with_name("libdragoman.so")
_TEXT_BYTES = 512


class InstructionsError(ValueError):
    """The environment names an instruction set that this processor or build lacks."""


def library_path() -> Path | None:
    """Returns the library, or None if sessions must run without it; then `why_no_library` returns the reason."""
    return None if why_no_library() else _LIBRARY


def why_no_library() -> str:
    """Returns why sessions run without the library; empty if they run with it."""
    if os.environ.get(INSTRUCTIONS_VARIABLE) == FALLBACK:
        return f"{INSTRUCTIONS_VARIABLE} is {FALLBACK}"
    if not _LIBRARY.exists():
        return f"{_LIBRARY} does not exist: there was no C++17 compiler when Dragoman was installed"
    try:
        ctypes.CDLL(str(_LIBRARY))
    except OSError as error:
        return f"the library cannot be loaded on {platform.machine()}: {error}"
    return ""


def instructions() -> str:
    """Returns the name of the instruction set that the library computes with; `fallback` without the library.

    Raises InstructionsError if the environment names another one than this processor and build have.
    """
    path = library_path()
    if path is None:
        return FALLBACK
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    failed = ctypes.CDLL(str(path)).dragoman_instructions(text, ctypes.c_size_t(_TEXT_BYTES))
    if failed:
        raise InstructionsError(text.value.decode())
    return text.value.decode()
