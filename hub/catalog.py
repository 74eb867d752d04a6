"""The catalog: a default model for each pair of languages, with the facts that are known about it."""

from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

CATALOG = Path(__file__).with_name("catalog.json")


class CatalogModel(BaseModel):
    """A model of the catalog. An unknown fact is None: the hub states it when the model is pulled.

    Attributes:
        source: ISO 639 code.
        target: ISO 639 code.
        model: name, as `dragoman pull` takes it.
        license: SPDX identifier, in lower case as the hub writes it.
        download_bytes: size of the files that a pull downloads, to a megabyte.
        facts: page of the hub on which license and sizes were read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str = Field(pattern=r"^[a-z]{2,3}$")
    target: str = Field(pattern=r"^[a-z]{2,3}$")
    model: str
    license: str | None = None
    download_bytes: int | None = None
    facts: str | None = None


_CATALOG = TypeAdapter(tuple[CatalogModel, ...])


@cache
def read_catalog() -> tuple[CatalogModel, ...]:
    """Returns the models of the catalog."""
    return _CATALOG.validate_json(CATALOG.read_bytes())


def find_default(source: str, target: str) -> CatalogModel | None:
    """Returns the default model of a pair of languages."""
    return next((entry for entry in read_catalog() if (entry.source, entry.target) == (source, target)), None)
