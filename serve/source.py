"""What models on demand come from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

# The bytes on this machine and those of the whole download, 0 if they are unknown.
Progress = tuple[int, int]


class ModelSource(Protocol):
    """Where models come from. Its functions run in threads; the message of their errors is one line."""

    @property
    def pairs(self) -> Mapping[str, tuple[str, str]]:
        """Source and target of each model by name."""

    def find(self, name: str) -> Path | None:
        """Returns the bundle of an installed model; None: it is not installed."""

    def fetch(self, name: str) -> Path:
        """Installs a model and returns its bundle; raises an error if that fails, or after `stop`."""

    def progress(self) -> Mapping[str, Progress]:
        """Returns the models that any process fetches now, by name."""

    def stop(self) -> None:
        """Ends the fetches of this process; the next ones continue their downloads."""
