"""Dragoman trains Transformers, exports them and serves translation.

model, hub, export, serve, protos, loadtest, library and bundles are links to folders of the checkout; a wheel holds the
folders themselves. `command_line` is the command `dragoman`. A name of the library is imported at its first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.library.aio import AsyncTranslator
    from dragoman.library.blocking import Translator
    from dragoman.serve.clients.aio import AsyncTranslationClient
    from dragoman.serve.clients.client import TranslationClient
    from dragoman.serve.local.errors import (
        ClosedError,
        DeadlineError,
        InvalidArgumentError,
        ModelError,
        TranslationError,
    )
    from dragoman.serve.local.options import EngineSettings, TranslateOptions
    from dragoman.serve.protect.terms.entry import Entry
    from dragoman.serve.translation.response import Translation, TranslationDelta, TranslationResponse

__all__ = [
    "AsyncTranslationClient",
    "AsyncTranslator",
    "ClosedError",
    "DeadlineError",
    "EngineSettings",
    "Entry",
    "InvalidArgumentError",
    "ModelError",
    "TranslateOptions",
    "Translation",
    "TranslationClient",
    "TranslationDelta",
    "TranslationError",
    "TranslationResponse",
    "Translator",
]

_MODULES = {
    "library.aio": ("AsyncTranslator",),
    "library.blocking": ("Translator",),
    "serve.clients.aio": ("AsyncTranslationClient",),
    "serve.clients.client": ("TranslationClient",),
    "serve.local.errors": ("ClosedError", "DeadlineError", "InvalidArgumentError", "ModelError", "TranslationError"),
    "serve.local.options": ("EngineSettings", "TranslateOptions"),
    "serve.protect.terms.entry": ("Entry",),
    "serve.translation.response": ("Translation", "TranslationDelta", "TranslationResponse"),
}


def __getattr__(name: str) -> object:
    """Returns a name of the library."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f".{module}", __package__), name)
    raise AttributeError(f"module 'dragoman' has no attribute {name!r}")
