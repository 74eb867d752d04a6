"""The catalog: the model of each pair of languages, the facts about it, and the reason for the choice.

A released model of Firefox Translations comes first: it is small, made for processors, and its registry has
measurements. Next come OPUS-MT, in a list of this package, then Argos Translate. An installed model stays until it is
pulled again.
"""

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from dragoman.hub.connection import OfflineError
from dragoman.hub.firefox import LICENSE, Registry, describe_choice, read_registry
from dragoman.hub.names import ArgosModel, FirefoxModel, HubError, HubModel, LanguagePair, RepositoryModel
from dragoman.hub.store import Installed, Store

CATALOG = Path(__file__).with_name("catalog.json")
LISTED = "OPUS-MT: no released one of Firefox"


class CatalogModel(NamedTuple):
    """A model of the list: its ISO 639 codes, the name that `dragoman pull` takes, and facts that its page states.

    The license is an SPDX identifier as the hub writes it; the size is that of the files that a pull downloads, to a
    megabyte; `facts` is the page. An unknown fact is None: the hub states it when the model is pulled.
    """

    source: str
    target: str
    model: str
    license: str | None = None
    download_bytes: int | None = None
    facts: str | None = None


@cache
def read_catalog() -> tuple[CatalogModel, ...]:
    """Returns the models of the list in this package."""
    return tuple(CatalogModel(**entry) for entry in json.loads(CATALOG.read_bytes()))


class CatalogRow(NamedTuple):
    """The model of a pair, such as en-de, and its facts. The registry gives COMET from 0 to 1."""

    pair: str
    model: str
    architecture: str | None
    license: str | None
    reason: str
    size_bytes: int | None
    chrf: float | None
    comet: float | None


def list_catalog(registry: Registry | None, language: str | None) -> dict[str, CatalogRow]:
    """Returns the model of each pair, or of those with a language; without a registry those of the list.

    Raises HubError if no pair has the language.
    """
    rows = {
        entry[:2]: CatalogRow(
            "-".join(entry[:2]), entry.model, None, entry.license, LISTED, entry.download_bytes, None, None
        )
        for entry in read_catalog()
    }
    for pair, records in (registry.pairs() if registry else {}).items():
        best, reason = records[0], f"Firefox: {describe_choice(*records)}"
        facts = best.size_bytes, best.chrf or None, best.comet or None
        rows[pair] = CatalogRow("-".join(pair), str(FirefoxModel(*pair)), best.architecture, LICENSE, reason, *facts)
    found = [rows[pair] for pair in sorted(rows) if language is None or language in pair]
    if not found:
        known = ", ".join(sorted({code for pair in rows for code in pair}))
        raise HubError(f"{language}: no pair of the catalog has this language, expected one of {known}")
    return {row.pair: row for row in found}


def in_megabytes(size_bytes: int) -> str:
    """Returns a size as a table shows it."""
    return f"{size_bytes / 1e6:,.0f} MB"


def find_listed(pair: LanguagePair) -> str | None:
    """Returns the name of the model that the list has for a pair."""
    return next((entry.model for entry in read_catalog() if entry[:2] == (pair.source, pair.target)), None)


def find_installed(store: Store, reference: HubModel | LanguagePair) -> Installed | None:
    """Returns the installed model of a name; for a pair the first of the models that the catalog may choose."""
    names = [str(reference)]
    if isinstance(reference, LanguagePair):
        pair = reference.source, reference.target
        names = [str(FirefoxModel(*pair)), find_listed(reference) or "", str(ArgosModel(*pair))]
    return next(filter(None, map(store.find, names)), None)


def choose(store: Store, pair: LanguagePair) -> tuple[HubModel, str]:
    """Returns the model of a pair, and why it is that of the list although no registry was read; "" otherwise.

    An installed model of Firefox stays, whatever its registry states now.

    Raises HubError if the registry cannot be read, and the list has no model either; OfflineError if that is why.
    """
    languages, listed, problem = (pair.source, pair.target), find_listed(pair), ""
    firefox = FirefoxModel(*languages)
    try:
        if store.find(str(firefox)) or languages in read_registry(store, str(pair)).pairs():
            return firefox, problem
    except HubError as error:
        if listed is None or isinstance(error, OfflineError):
            raise
        problem = f"{error}: {listed} is used instead"
    return RepositoryModel(listed) if listed else ArgosModel(*languages), problem
