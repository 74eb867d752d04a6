"""Dragoman trains Transformers, exports them and serves translation.

model, hub, export, serve, protos, loadtest and bundles are links to folders of the checkout; a wheel holds the folders
themselves. `command_line` is the command `dragoman`. A Python client is imported at its first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.serve.clients.aio import AsyncTranslationClient
    from dragoman.serve.clients.client import TranslationClient

__all__ = ["AsyncTranslationClient", "TranslationClient"]

CLIENTS = {"AsyncTranslationClient": ".serve.clients.aio", "TranslationClient": ".serve.clients.client"}


def __getattr__(name: str) -> object:
    """Returns a Python client."""
    if name in CLIENTS:
        return getattr(import_module(CLIENTS[name], __package__), name)
    raise AttributeError(f"module 'dragoman' has no attribute {name!r}")
