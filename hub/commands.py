"""The commands `dragoman pull`, `models` and `remove`."""

import os
import sys
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from dragoman.hub.catalog import CatalogRow, find_installed, in_megabytes, list_catalog
from dragoman.hub.firefox import Registry, read_registry
from dragoman.hub.install import install
from dragoman.hub.licenses import short_license
from dragoman.hub.names import HubError, Languages, LocalModel, parse_name
from dragoman.hub.store import Store, copy_bundle
from dragoman.model.errors import UsageError
from dragoman.serve.commands.listing import Columns, ListingCommand

NO_MODELS = "no model is installed: `dragoman pull en-de` installs one, `dragoman models --remote` lists the catalog"

MODEL_COLUMNS: Columns = {
    "name": str,
    "directions": ", ".join,
    "size_bytes": in_megabytes,
    "license": short_license,
    "origin": str,
}
CATALOG_COLUMNS: Columns = {
    **dict.fromkeys(CatalogRow._fields, str),
    "size_bytes": in_megabytes,
    "chrf": "{:.1f}".format,
    "comet": "{:.4f}".format,
}


class PullCommand(BaseSettings):
    """Download models and convert them for `dragoman serve`, or update them.

    A name is a pair of languages such as en-de, for which the catalog chooses a model; firefox:en-de of Firefox
    Translations; OWNER/NAME or OWNER/NAME@REVISION of the Hugging Face hub; argos:en-es of the index of Argos
    Translate; ct2:OWNER/NAME of a CTranslate2 model; a file or folder. The license is shown before the download. An
    interrupted download continues. Bundles are in ~/.cache/dragoman, or in DRAGOMAN_CACHE.

    --to copies each bundle to a folder, for `dragoman serve FOLDER` in a container or on another machine.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_PULL_", frozen=True, extra="forbid")

    names: CliPositionalArg[list[str]] = Field([], description="Names of models")
    all_of: str | None = Field(None, description="Also all pairs of the catalog with this language, as cs")
    source_language: str | None = Field(None, description="Source language, if the model's files lack it")
    target_language: str | None = Field(
        None, description="Target language, if the files lack it; selects one direction of several"
    )
    to: Path | None = Field(None, description="Folder that gets a copy of each bundle, under the name of the model")

    def cli_cmd(self) -> None:
        """Installs or updates every model."""
        languages = Languages(self.source_language, self.target_language)
        store = Store.of_user()
        for name in [*self.names, *self._pairs(store)]:
            installed = install(store, name, languages, update=True)
            folder = store.bundle(installed.key)
            if self.to is not None:
                with store.lock(os.path.realpath(self.to / installed.model)):
                    folder = copy_bundle(folder, self.to / installed.model)
            print(f"{installed.name}: {folder}")

    def _pairs(self, store: Store) -> list[str]:
        """Returns the pairs with the language of --all-of; raises HubError if there is nothing to pull."""
        if self.all_of is None:
            if not self.names:
                raise UsageError("NAME, --all-of: expected a name or a language, as `dragoman pull en-de`")
            return []
        return list(list_catalog(read_registry(store, f"--all-of {self.all_of}"), self.all_of))


class ModelsCommand(ListingCommand):
    """List the installed models, or the catalog."""

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_MODELS_")

    remote: bool = Field(False, description="List the catalog instead: the model of each pair of languages, and why")
    language: str | None = Field(None, description="List the pairs of the catalog with this language, as cs")

    def cli_cmd(self) -> None:
        """Prints a row per model."""
        if self.remote or self.language:
            rows = (row._asdict() for row in list_catalog(self._registry(), self.language).values())
            self.print_rows(rows, CATALOG_COLUMNS, "")
        else:
            installed = (model.model_dump(mode="json") for model in Store.of_user().installed())
            self.print_rows(installed, MODEL_COLUMNS, NO_MODELS)

    def _registry(self) -> Registry | None:
        try:
            return read_registry(Store.of_user(), "models of Firefox Translations")
        except HubError as error:
            print(f"dragoman models: without those of Firefox Translations: {error}", file=sys.stderr)
            return None


class RemoveCommand(BaseSettings):
    """Remove installed models. A running server keeps those that it has loaded."""

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_REMOVE_", frozen=True, extra="forbid")

    names: CliPositionalArg[list[str]] = Field(
        min_length=1, description="Names of models, as `dragoman models` lists them"
    )

    def cli_cmd(self) -> None:
        """Removes every model."""
        store = Store.of_user()
        for name in self.names:
            key = _recorded_name(store, name)
            with store.lock(key):
                installed = store.find(key)
                if installed is None:
                    raise HubError(f"{name}: not installed; `dragoman models` lists installed models")
                freed = store.remove(installed)
            print(f"{name}: removed" + ("" if freed else "; another name keeps its bundle"))


def _recorded_name(store: Store, name: str) -> str:
    """Returns the name under which a model is recorded: of the chosen model for a pair, the absolute path of a path."""
    try:
        reference = parse_name(name)
    except HubError:
        return name
    if isinstance(reference, LocalModel):
        return str(reference.path.resolve())
    installed = find_installed(store, reference)
    return str(reference) if installed is None else installed.name
