"""The commands `dragoman pull`, `models` and `remove`."""

import os
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from dragoman.hub.catalog import read_catalog
from dragoman.hub.convert import Languages
from dragoman.hub.install import install
from dragoman.hub.licenses import forbids_commercial_use
from dragoman.hub.names import HubError, parse_name, reported
from dragoman.hub.store import Store, copy_bundle
from dragoman.model.text_table import format_table

Row = tuple[str, ...]
NO_MODELS = "no model is installed: `dragoman pull en-de` installs one, `dragoman models --remote` lists the catalog"


class PullCommand(BaseSettings):
    """Download models and convert them for `dragoman serve`, or update them.

    A name is OWNER/NAME or OWNER/NAME@REVISION of the Hugging Face hub, argos:en-es of the index of Argos Translate,
    ct2:OWNER/NAME of a CTranslate2 model, a file or folder, or a pair of the catalog as en-de. The license is shown
    before the download. An interrupted download continues. Bundles are in ~/.cache/dragoman, or in DRAGOMAN_CACHE.

    With --to, a folder gets a copy of each bundle, for `dragoman serve FOLDER` in a container or on another machine.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_PULL_", frozen=True, extra="forbid")

    names: CliPositionalArg[list[str]] = Field(min_length=1, description="Names of models")
    source_language: str | None = Field(None, description="Source language, if the model's files lack it")
    target_language: str | None = Field(
        None, description="Target language, if the files lack it; selects one direction of several"
    )

    to: Path | None = Field(None, description="Folder that gets a copy of each bundle, under the name of the model")

    def cli_cmd(self) -> None:
        """Installs or updates every model."""
        languages = Languages(self.source_language, self.target_language)
        with reported("pull"):
            store = Store.of_user()
            for name in self.names:
                installed = install(store, name, languages, update=True)
                folder = store.bundle(installed.key)
                if self.to is not None:
                    with store.lock(os.path.realpath(self.to / installed.model)):
                        folder = copy_bundle(folder, self.to / installed.model)
                print(f"{installed.name}: {folder}")


class ModelsCommand(BaseSettings):
    """List the installed models, or the catalog."""

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_MODELS_", frozen=True, extra="forbid")

    remote: bool = Field(False, description="List the catalog instead: a model for each pair of languages")

    def cli_cmd(self) -> None:
        """Prints a table."""
        if self.remote:
            rows: list[Row] = [
                (f"{entry.source}-{entry.target}", entry.model, _size(entry.download_bytes), _license(entry.license))
                for entry in read_catalog()
            ]
            print(format_table([("pair", "model", "download", "license"), *rows], 4))
            return
        with reported("models"):
            installed = Store.of_user().installed()
        rows = [
            (model.name, ", ".join(model.directions), _size(model.size_bytes), _license(model.license), model.origin)
            for model in installed
        ]
        print(format_table([("name", "directions", "size", "license", "from"), *rows], 5) if rows else NO_MODELS)


class RemoveCommand(BaseSettings):
    """Remove installed models. A running server keeps those that it has loaded."""

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_REMOVE_", frozen=True, extra="forbid")

    names: CliPositionalArg[list[str]] = Field(
        min_length=1, description="Names of models, as `dragoman models` lists them"
    )

    def cli_cmd(self) -> None:
        """Removes every model."""
        with reported("remove"):
            store = Store.of_user()
        for name in self.names:
            key = _recorded_name(name)
            with store.lock(key):
                installed = store.find(key)
                if installed is None:
                    raise SystemExit(
                        f"dragoman remove: {name}: not installed; `dragoman models` lists installed models"
                    )
                freed = store.remove(installed)
            print(f"{name}: removed" + ("" if freed else "; another name keeps its bundle"))


def _recorded_name(name: str) -> str:
    """Returns the name of the record: that of the catalog's model for a pair, an absolute path for a path."""
    try:
        reference = parse_name(name)
    except HubError:
        return name
    path = getattr(reference, "path", None)
    return str(reference) if path is None else str(path.resolve())


def _size(size_bytes: int | None) -> str:
    return "" if size_bytes is None else f"{size_bytes / 1e6:,.0f} MB"


def _license(name: str | None) -> str:
    if name is None:
        return ""
    return f"{name} (not for commercial use)" if forbids_commercial_use(name) else name
