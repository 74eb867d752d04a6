"""The translator for asyncio."""

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Self, Unpack

from dragoman.hub.install import find_bundle
from dragoman.hub.names import HubError
from dragoman.hub.progress import reported_to
from dragoman.serve.local.errors import ModelError
from dragoman.serve.local.options import EngineSettings
from dragoman.serve.local.translator import LocalTranslator

Model = str | PathLike[str]


def find_models(models: Sequence[Model], *, offline: bool) -> Path:
    """Installs missing models, and returns the folder of all bundles; reports downloads on standard error.

    Args:
        offline: whether no connection may be opened.

    Raises:
        ModelError: if a model cannot be found or installed.
    """
    try:
        with reported_to(sys.stderr):
            return find_bundle([fspath(model) for model in models], offline=offline)
    except HubError as error:
        raise ModelError(str(error)) from error


class AsyncTranslator(LocalTranslator):
    """Translates in this process: `async with AsyncTranslator("en-de") as translator`.

    Calls of one event loop may run concurrently.
    """

    def __init__(self, model: Model, *more: Model, offline: bool = False, **settings: Unpack[EngineSettings]) -> None:
        """Opens nothing yet.

        Args:
            model: name of a model, as for `dragoman serve`, or folder of one or several bundles.
            more: further models, for other directions.
            offline: whether no connection may be opened; all models must then be installed.

        Raises:
            InvalidArgumentError: if a setting is invalid.
        """
        super().__init__(model, **settings)
        self._find = partial(find_models, (model, *more), offline=offline)

    async def __aenter__(self) -> Self:
        """Installs missing models and loads all; raises ModelError if that fails."""
        self._bundle = await asyncio.to_thread(self._find)
        return await super().__aenter__()
