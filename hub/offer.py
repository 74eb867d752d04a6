"""What a hub offers for a name: the current files of a model, and what its bundle states about them."""

from dataclasses import dataclass
from pathlib import Path

from dragoman.hub.connection import HubAccess
from dragoman.hub.download import RemoteFile, describe_size, download
from dragoman.hub.names import NO_LANGUAGES, Languages
from dragoman.hub.progress import report


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The current files of a name.

    Attributes:
        access: names of the hub for requests and messages.
        origin: text that changes if the files change.
        license: identifier as the hub states it; None if it states none.
        languages: languages that the files do not state.
        facts: lines for the README of the bundle.
        choice: the chosen record, their number and the reason; empty if the hub has only one.
    """

    access: HubAccess
    files: tuple[RemoteFile, ...]
    origin: str
    license: str | None = None
    languages: Languages = NO_LANGUAGES
    facts: tuple[str, ...] = ()
    choice: str = ""

    def fetch(self, folder: Path) -> Path:
        """Downloads the files and returns their folder, or the path of a single file; raises HubError if that fails."""
        choice = f"{self.choice}: " if self.choice else ""
        report(f"{self.access.model}: {choice}downloads {describe_size(self.files)} from {self.files[0].url}")
        download(self.access, self.files, folder)
        return folder / self.files[0].name if len(self.files) == 1 else folder
